"""Databases: where a store can be kept, SQLite in a file or PostgreSQL, behind one interface.

Theory. Every write takes the database's one lock before it looks at anything, and lets go of it
when it has committed. So a stale `if_match` is always seen, and revision numbers appear in their
order: who has read revision n never finds a lower one later. Readers wait for nobody.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from serve.control.storage.limits import LIMITS, StoreTimeouts
from serve.core.errors import CannotStart

_BUSY = 5.0  # seconds that a writer waits for another process
_RETRY = 0.005  # seconds until what does not wait by itself is tried again
_SCHEMES = ("postgresql://", "postgres://")


class Database(Protocol):
    """One database. `name` is for people and holds no password, `advice` what they can try.

    `patient` is for work without a limit of time: migrations, backup, restore.
    """

    name: str
    advice: str

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """A connection for one question."""

    def snapshot(self) -> AbstractContextManager[sa.Connection]:
        """A connection that sees one state of everything, however long it is asked."""

    def writing(self, *, patient: bool = False) -> AbstractContextManager[sa.Connection]:
        """The only transaction that writes; committed at the end, rolled back on an error."""

    def announce(self, connection: sa.Connection) -> None:
        """Tell other processes of this transaction once it is committed."""

    async def announcement(self) -> None:
        """Wait until somebody has perhaps written something, for ever where nobody can tell.

        It may come too often, and not at all while the connection is gone: so look now and then.
        """

    def close(self) -> None:
        """Give the connections back."""


def is_postgres(where: Path | str) -> bool:
    """Whether this is the URL of a PostgreSQL database."""
    return isinstance(where, str) and where.startswith(_SCHEMES)


def open_database(where: Path | str, limits: StoreTimeouts = LIMITS) -> Database:
    """The database in a file or behind a PostgreSQL URL; it is not connected to yet."""
    if isinstance(where, Path):
        return Sqlite(where)
    if not is_postgres(where):
        raise CannotStart(
            "the database URL is not valid",
            why="it does not start with postgresql://",
            try_this="use postgresql://USER@HOST/DATABASE, or no URL to use SQLite",
        )
    try:
        from serve.control.storage.postgres import Postgres
    except ImportError as error:
        raise CannotStart(
            "PostgreSQL cannot be used as the store",
            why=f"the driver is missing: {error}",
            try_this="pip install '.[postgres]' in a checkout of Servegate",
        ) from error
    return Postgres(where, limits)


class Sqlite:
    """A database in a file: one machine, one control plane."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.advice = "restore a backup; or move the file away, which loses routes and history"
        url = sa.URL.create("sqlite", database=str(path))
        self._engine = sa.create_engine(url, connect_args={"timeout": _BUSY})
        self._writer = self._engine.execution_options(writes=True)
        sa.event.listen(self._engine, "do_connect", lambda *_: _keep_private(path))
        sa.event.listen(self._engine, "connect", _on_connect)
        sa.event.listen(self._engine, "begin", _on_begin)

    def __repr__(self) -> str:
        return f"<Sqlite {self.name}>"

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """See `Database`."""
        return self._engine.connect()

    def snapshot(self) -> AbstractContextManager[sa.Connection]:
        """See `Database`: a transaction's first question fixes what it sees (WAL)."""
        return self._engine.connect()

    @contextlib.contextmanager
    def writing(self, *, patient: bool = False) -> Iterator[sa.Connection]:
        """See `Database`: `BEGIN IMMEDIATE` takes the file's lock for writers."""
        with self._writer.begin() as connection:
            yield connection

    def announce(self, connection: sa.Connection) -> None:
        """Nobody is told: other processes look."""

    async def announcement(self) -> None:
        """See `Database`: SQLite tells nobody."""
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """See `Database`."""
        self._engine.dispose()


def _keep_private(path: Path) -> None:
    """Make the file before SQLite would, for this user alone; the files next to it get its mode.

    What cannot be opened or changed here is left to SQLite, whose error says more.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for suffix in ("", "-wal", "-shm"):  # of a store that another version has written
        with contextlib.suppress(OSError):
            os.chmod(f"{path}{suffix}", 0o600)  # noqa: PTH101


def _on_connect(connection: Any, record: object) -> None:
    """Readers never wait for the writer (WAL), and a commit survives a crash of the process."""
    connection.isolation_level = None  # the driver begins no transactions of its own: we do
    cursor = connection.cursor()
    _write_ahead(cursor)
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _write_ahead(cursor: Any) -> None:
    """Switch to WAL, which does not wait for other processes that do the same to a new file."""
    end = time.monotonic() + _BUSY
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(_RETRY)


def _on_begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
