"""PostgreSQL as the store's database: connections that give up in time, one lock, notifications.

| what can hang                     | what ends it                                            |
|-----------------------------------|---------------------------------------------------------|
| a host that does not answer       | `connect_timeout`, 3 s                                  |
| a statement, or the wait for locks| the server's `statement_timeout`, 3 s                   |
| a server that stands still        | `Limited`: the client gives up after 4 s                |
| a connection that died unseen     | a question before each use, and a new connection        |
| a client that died in a write     | the server's `idle_in_transaction_session_timeout`, 10 s|
"""

import asyncio
import contextlib
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from serve.control.storage.limits import LIMITS, StoreTimeouts
from serve.core.errors import CannotStart

T = TypeVar("T")
_CHANNEL = "servegate"
_WRITERS = 0x5E7E6A7E_00000001  # the advisory lock of everybody who writes to the store
_OLDEST = 130_000
ALIVE = {  # a host that vanished is noticed within eleven seconds, also by the server
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


class Postgres:
    """One PostgreSQL database, 13 or newer, by its URL (libpq's rules: several hosts, sslmode …).

    What libpq finds in its own variables and files (PGPASSWORD, ~/.pgpass) counts too.
    """

    def __init__(self, url: str, limits: StoreTimeouts = LIMITS) -> None:
        self._parameters = parameters(url, limits)
        self.name = name_of(self._parameters)
        self.advice = "start PostgreSQL, or correct the URL of --database"
        session = {
            "statement_timeout": f"{limits.statement * 1000:.0f}",  # milliseconds
            "idle_in_transaction_session_timeout": "10s",
        }
        common: dict[str, Any] = {"isolation_level": "READ COMMITTED"}
        self._engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(self._parameters, session, within=limits.answer),
            pool_pre_ping=True,
            pool_size=2,
            pool_timeout=limits.connect,
            **common,
        )
        self._patient = sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(self._parameters, {}),
            poolclass=sa.NullPool,
            **common,
        )
        self._listener = _Listener(self._parameters, limits.answer)

    def __repr__(self) -> str:
        return f"<Postgres {self.name}>"

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """See `Database`."""
        return self._engine.connect()

    def snapshot(self) -> AbstractContextManager[sa.Connection]:
        """See `Database`."""
        return self._patient.execution_options(isolation_level="REPEATABLE READ").connect()

    @contextlib.contextmanager
    def writing(self, *, patient: bool = False) -> Iterator[sa.Connection]:
        """See `Database`: the lock is let go of after the commit is visible to everybody."""
        with (self._patient if patient else self._engine).begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITERS)))
            yield connection

    def announce(self, connection: sa.Connection) -> None:
        """See `Database`."""
        connection.execute(sa.select(sa.func.pg_notify(_CHANNEL, "")))

    async def announcement(self) -> None:
        """See `Database`."""
        await self._listener.announcement()

    def close(self) -> None:
        """See `Database`."""
        self._listener.close()
        self._engine.dispose()
        self._patient.dispose()


class _Listener:
    """A connection that hears of what is committed. Threads connect, the event loop waits."""

    def __init__(self, given: Mapping[str, Any], within: float) -> None:
        self._parameters = given
        self._within = within
        self._connection: psycopg.Connection[Any] | None = None
        self._connecting: asyncio.Future[psycopg.Connection[Any]] | None = None

    async def announcement(self) -> None:
        """Until one comes. A new connection is one too: something may have been missed."""
        try:
            if self._connection is None:
                self._connection = await self._connected()
                return
            await readable(self._connection)
            self._connection.pgconn.consume_input()
            while self._connection.pgconn.notifies():
                pass
        except psycopg.Error:
            self.close()
            await asyncio.get_running_loop().create_future()

    async def _connected(self) -> psycopg.Connection[Any]:
        """An attempt outlives those who wait for it: they look at the clock, too."""
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(asyncio.to_thread(self._listen))
        connection = await asyncio.shield(self._connecting)
        self._connecting = None
        return connection

    def _listen(self) -> psycopg.Connection[Any]:
        connection = connect(self._parameters, ALIVE, within=self._within)
        connection.autocommit = True
        connection.execute(f"listen {_CHANNEL}")
        return connection

    def close(self) -> None:
        """Hear no more."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Limited(psycopg.Connection[Any]):
    """A connection that closes itself when an answer takes too long: see the table above."""

    answer = LIMITS.answer  # seconds

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run what the driver waits for, up to `answer` seconds."""
        return super().wait(self._until(gen, time.monotonic() + self.answer), *args, **options)

    def _until(self, gen: PQGen[T], end: float) -> Generator[Any, Any, T]:
        """The same generator; the driver resumes it at least ten times a second."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > end:
                    gen.close()
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.answer:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            result: T = done.value
            return result


def parameters(url: str, limits: StoreTimeouts) -> dict[str, Any]:
    """What a URL says, and what it should have said; the URL itself is in no error."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise CannotStart(
            "the database URL is not valid",
            why="it is not a PostgreSQL URL",  # libpq's own sentence may quote the password
            try_this="use postgresql://USER@HOST/DATABASE, and percent-encode special characters",
        ) from None
    ours = {
        "connect_timeout": limits.connect,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 8000,  # milliseconds
        "client_encoding": "utf8",
        "application_name": "servegate",
    }
    return {**ours, **given}


def name_of(given: Mapping[str, Any]) -> str:
    """A database as people know it, without the password."""
    who = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{who}{given.get('host', '')}{port}/{given.get('dbname', '')}"


def connect(
    given: Mapping[str, Any], session: Mapping[str, str], *, within: float | None = None
) -> psycopg.Connection[Any]:
    """A connection with these session settings, not in a transaction.

    It gives up when an answer is not there `within` so many seconds; None: it waits.
    """
    kind = psycopg.Connection if within is None else Limited
    connection = kind.connect(**given, prepare_threshold=None, autocommit=True)
    if isinstance(connection, Limited) and within is not None:
        connection.answer = within
    try:
        if connection.info.server_version < _OLDEST:
            version = connection.info.server_version // 10_000
            raise CannotStart(
                f"PostgreSQL {version} is too old", try_this="use PostgreSQL 13 or newer"
            )
        for name, value in session.items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


async def readable(connection: psycopg.Connection[Any]) -> None:
    """Wait until the server has sent something, or the connection has ended."""
    loop, said = asyncio.get_running_loop(), asyncio.Event()
    descriptor = connection.fileno()
    loop.add_reader(descriptor, said.set)
    try:
        await said.wait()
    finally:
        loop.remove_reader(descriptor)
