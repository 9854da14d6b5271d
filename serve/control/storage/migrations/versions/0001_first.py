"""The first schema: settings, the revisions that led to them, and the generation counter."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "revisions",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("key", sa.String(400), nullable=False),
        sa.Column("before", sa.Text, nullable=True),
        sa.Column("after", sa.Text, nullable=True),
    )
    op.create_table(
        "settings",
        sa.Column("kind", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(400), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, sa.ForeignKey("revisions.id"), nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop them again."""
    op.drop_table("counters")
    op.drop_table("settings")
    op.drop_table("revisions")
