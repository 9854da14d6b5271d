"""The store's tables, and how they are brought up to date.

`settings` holds the present body of each thing, `revisions` one row for every change, `counters`
what must keep rising, and the gateway's id. The same scripts bring SQLite and PostgreSQL there.
"""

from pathlib import Path

import sqlalchemy as sa

from serve.core.errors import CannotStart

metadata = sa.MetaData()
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # there INTEGER has 64 bits
revisions = sa.Table(
    "revisions",
    metadata,
    sa.Column("id", _Number, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("before", sa.Text, nullable=True),
    sa.Column("after", sa.Text, nullable=True),
    sa.Index("revisions_of_a_thing", "kind", "key", "id"),
)
settings = sa.Table(
    "settings",
    metadata,
    sa.Column("kind", sa.String(40), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("revision", _Number, sa.ForeignKey("revisions.id"), nullable=False),
)
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
IDENTITY = "gateway"  # the row of `counters` with the gateway's random id; a restore leaves it out
_MIGRATIONS = Path(__file__).parent / "migrations"


def newest_schema() -> str:
    """The revision of the last migration; their files are named after their revisions."""
    return max(path.name.partition("_")[0] for path in _MIGRATIONS.glob("versions/[0-9]*.py"))


def schema_of(connection: sa.Connection) -> str:
    """The revision of the schema behind a connection; empty where there is no store."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return ""
    found = connection.execute(sa.text("select version_num from alembic_version")).scalar()
    return str(found or "")


def upgrade(connection: sa.Connection, to: str = "head") -> None:
    """Bring the schema up to date, from nothing or from any earlier revision.

    The connection must be the only one that writes. `CannotStart` for a schema that a newer
    Servegate has written.
    """
    present = schema_of(connection)
    if present > newest_schema():
        raise CannotStart(
            "the store was written by a newer Servegate",
            why=f"its schema is {present}, and this Servegate's is {newest_schema()}",
            try_this="use the newer Servegate, or restore an older backup",
        )
    if present == newest_schema():
        return
    from alembic import command  # takes half a second to import, and is rarely needed
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
