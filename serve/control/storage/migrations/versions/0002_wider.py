"""Numbers of 64 bits and texts of any length, and an index by which one thing's history is found.

Only PostgreSQL keeps to widths and lengths: SQLite's columns have none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBERS = (("revisions", "id"), ("settings", "revision"))
_TEXTS = (("revisions", "author"), ("revisions", "reason"), ("revisions", "key"))


def upgrade() -> None:
    """Widen the columns."""
    if op.get_bind().dialect.name == "postgresql":
        for table, column in _NUMBERS:
            op.alter_column(table, column, type_=sa.BigInteger)
        op.execute("alter sequence revisions_id_seq as bigint")
        for table, column in (*_TEXTS, ("settings", "key")):
            op.alter_column(table, column, type_=sa.Text)
    op.create_index("revisions_of_a_thing", "revisions", ["kind", "key", "id"])


def downgrade() -> None:
    """Give up the index; columns stay wide, so that nothing in them is cut off."""
    op.drop_index("revisions_of_a_thing", "revisions")
