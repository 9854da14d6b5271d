"""The store: what people have decided, and every change they made; the only place with SQL.

Theory. `settings` holds the present body of each thing (a route, a label, a model's settings),
keyed by kind and key. `revisions` holds one row for every change, in order, with what was there
before and after: it is only ever appended to. Both are written in one transaction, and a thing's
revision number is its ETag. `counters` holds the generation of the last snapshot, which must keep
rising over restarts.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from serve.core.errors import CannotStart, PreconditionFailed, Unavailable

metadata = sa.MetaData()
revisions = sa.Table(
    "revisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("author", sa.String(200), nullable=False),
    sa.Column("reason", sa.String(1000), nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("key", sa.String(400), nullable=False),
    sa.Column("before", sa.Text, nullable=True),
    sa.Column("after", sa.Text, nullable=True),
)
settings = sa.Table(
    "settings",
    metadata,
    sa.Column("kind", sa.String(40), primary_key=True),
    sa.Column("key", sa.String(400), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, sa.ForeignKey("revisions.id"), nullable=False),
)
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

T = TypeVar("T")
_MIGRATIONS = Path(__file__).parent / "migrations"
Key = tuple[str, str]  # kind, key


def etag(revision: int) -> str:
    """The entity tag of the state that a revision wrote, quotes included; 0 is "never set"."""
    return f'"{revision}"'


@dataclass(frozen=True, slots=True)
class Entry:
    """The present body of one thing, and the revision that wrote it."""

    body: Any
    revision: int

    @property
    def etag(self) -> str:
        """The entity tag of this state, quotes included."""
        return etag(self.revision)


@dataclass(frozen=True, slots=True)
class Change:
    """One edit: `after` is a JSON value, or None to delete. `if_match` is an ETag or empty."""

    kind: str
    key: str
    after: Any
    author: str
    reason: str = ""
    if_match: str = ""


class Store:
    """The SQLite store of one control plane. Calls run in a thread, one at a time."""

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        self._clock = clock  # seconds since the epoch: revisions tell people when
        self._path = path
        url = sa.URL.create("sqlite", database=str(path))
        self._engine = sa.create_engine(url, connect_args={"timeout": 5})
        sa.event.listen(self._engine, "connect", _on_connect)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Store {self._path}>"

    def migrate(self) -> None:
        """Bring the schema up to date, from nothing or from any earlier version."""
        try:
            self._migrate()
        except sa.exc.DatabaseError as error:
            raise CannotStart(
                f"the store {self._path} cannot be read",
                why=str(error.orig),
                try_this="a backup of it; or move it away, and lose routes, labels and history",
            ) from error

    def _migrate(self) -> None:
        if self._schema() == _newest_schema():
            return
        from alembic import command  # takes half a second to import, and is rarely needed
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        with self._engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _schema(self) -> str:
        with self._engine.connect() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return ""
            return str(
                connection.execute(sa.text("select version_num from alembic_version")).scalar()
            )

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    async def read(self) -> dict[Key, Entry]:
        """Everything that people have decided, by kind and key."""
        return await self._run(self._read)

    async def apply(self, change: Change) -> int:
        """Write one change and its revision; `PreconditionFailed` when `if_match` is stale."""
        return await self._run(lambda: self._apply(change))

    async def history(self, *, kind: str = "", key: str = "", limit: int = 100) -> list[Any]:
        """The newest revisions first, of all things or of one."""
        return await self._run(lambda: self._history(kind, key, limit))

    async def next_generation(self, at_least: int) -> int:
        """A generation above every one given out before, and not below `at_least`."""
        return await self._run(lambda: self._next_generation(at_least))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with self._lock:
                return await asyncio.to_thread(work)
        except (sa.exc.DatabaseError, ValueError) as error:
            why = str(getattr(error, "orig", error))
            raise Unavailable(f"the store {self._path} does not answer", why=why) from error

    def _read(self) -> dict[Key, Entry]:
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(settings)).all()
        return {(row.kind, row.key): Entry(json.loads(row.body), row.revision) for row in rows}

    def _apply(self, change: Change) -> int:
        where = (settings.c.kind == change.kind) & (settings.c.key == change.key)
        with self._engine.begin() as connection:
            present = connection.execute(sa.select(settings).where(where)).first()
            state = etag(present.revision if present else 0)
            if change.if_match and change.if_match not in (state, "*"):
                raise PreconditionFailed(f"{change.kind} '{change.key}'", state)
            after = None if change.after is None else json.dumps(change.after, sort_keys=True)
            revision = connection.execute(
                sa.insert(revisions).values(
                    at=self._clock(),
                    author=change.author,
                    reason=change.reason,
                    kind=change.kind,
                    key=change.key,
                    before=present.body if present else None,
                    after=after,
                )
            ).inserted_primary_key
            assert revision is not None, "an autoincrement key is always given"
            number = int(revision[0])
            connection.execute(sa.delete(settings).where(where))
            if after is not None:
                connection.execute(
                    sa.insert(settings).values(
                        kind=change.kind, key=change.key, body=after, revision=number
                    )
                )
        return number

    def _history(self, kind: str, key: str, limit: int) -> list[Any]:
        query = sa.select(revisions).order_by(revisions.c.id.desc()).limit(limit)
        if kind:
            query = query.where(revisions.c.kind == kind)
        if key:
            query = query.where(revisions.c.key == key)
        with self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def _next_generation(self, at_least: int) -> int:
        with self._engine.begin() as connection:
            where = counters.c.name == "generation"
            last = connection.execute(sa.select(counters.c.value).where(where)).scalar() or 0
            value = max(last + 1, at_least)
            connection.execute(sa.delete(counters).where(where))
            connection.execute(sa.insert(counters).values(name="generation", value=value))
        return value


def _newest_schema() -> str:
    """The revision of the last migration; their files are named after their revisions."""
    return max(path.name.partition("_")[0] for path in _MIGRATIONS.glob("versions/[0-9]*.py"))


def _on_connect(connection: Any, record: object) -> None:
    """Readers never wait for the writer (WAL), and a commit survives a crash of the process."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
