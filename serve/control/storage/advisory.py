"""Leadership by an advisory lock of PostgreSQL, which lives as long as its connection.

It needs a session of its own: a pooler in transaction mode (PgBouncer) gives it none.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from serve.control.storage.limits import LIMITS, StoreTimeouts
from serve.control.storage.postgres import ALIVE, connect, name_of, parameters, readable
from serve.core.errors import Unavailable

T = TypeVar("T")
_LEADER = 0x5E7E6A7F << 32  # with the schema's name in the lower half
_HOLDER = """select pid from pg_locks where locktype = 'advisory' and granted
and classid::bigint = %s and objid::bigint = %s and objsubid = 1
and database = (select oid from pg_database where datname = current_database())"""
_TICK = 1.0  # seconds between two looks at the lock


class AdvisoryLeadership:
    """One lock per schema of a database; see `leadership.Leadership`."""

    def __init__(
        self,
        url: str,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        limits: StoreTimeouts = LIMITS,
    ) -> None:
        self.lost = asyncio.Event()
        self.lost.set()
        self._parameters = parameters(url, limits)
        self._within = limits.answer
        self._pause = pause
        self._connection: psycopg.Connection[Any] | None = None
        self._backend = 0  # the server's process that held the lock for us last
        self._asking: asyncio.Future[Any] | None = None

    def __repr__(self) -> str:
        lost = " lost" if self.lost.is_set() else ""
        return f"<AdvisoryLeadership {name_of(self._parameters)}{lost}>"

    async def try_acquire(self) -> bool:
        """See `leadership.Leadership`."""
        try:
            holder = await self._ask(self._try_lock)
        except psycopg.Error as error:
            raise Unavailable(
                f"the store {name_of(self._parameters)} does not answer",
                why=(str(error) or type(error).__name__).splitlines()[0],
            ) from error
        if holder == 0:
            self.lost.clear()
        elif holder == self._backend:
            raise Unavailable(
                "it is not certain which control plane leads",
                why="a lost connection of this process still holds the lock",
            )
        return holder == 0

    async def acquire(self) -> None:
        """See `leadership.Leadership`."""
        while True:
            with contextlib.suppress(Unavailable):
                if await self.try_acquire():
                    return
            await self._pause(_TICK)

    async def keep(self) -> None:
        """See `leadership.Leadership`."""
        while True:
            if self._connection is not None and await self._answers():
                await self._quiet(self._connection)
                continue
            self.lost.set()
            self._drop()
            with contextlib.suppress(Unavailable):
                if not await self.try_acquire():
                    return
                continue
            await self._pause(_TICK)

    async def release(self) -> None:
        """See `leadership.Leadership`: whoever looks next can have it.

        Without the word the server lets go as well, but only once it has seen the connection end.
        """
        if self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])  # seconds at most; see `Limited`
        try:
            if not self.lost.is_set():
                with contextlib.suppress(psycopg.Error):
                    await self._ask(self._unlock)
        finally:
            self._drop()
            self.lost.set()

    async def _ask(self, work: Callable[[], T]) -> T:
        """In a thread, which goes on to its end when nobody waits for it any more."""
        self._asking = asking = asyncio.ensure_future(asyncio.to_thread(work))
        return await asyncio.shield(asking)

    def _try_lock(self) -> int:
        """0 when the lock is ours now, else the server's process that holds it, or -1."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = connect(self._parameters, ALIVE, within=self._within)
            connection.autocommit = True
        row = connection.execute("select current_schema()").fetchone()
        key = _LEADER | zlib.crc32(str(row and row[0]).encode())
        row = connection.execute("select pg_try_advisory_lock(%s)", (key,)).fetchone()
        if row and row[0]:
            self._backend = connection.info.backend_pid
            return 0
        row = connection.execute(_HOLDER, (key >> 32, key & 0xFFFFFFFF)).fetchone()
        return int(row[0]) if row else -1

    async def _answers(self) -> bool:
        try:
            await self._ask(self._look)
        except psycopg.Error:
            return False
        return True

    def _look(self) -> None:
        if self._connection is not None:
            self._connection.execute("select 1")

    def _unlock(self) -> None:
        if self._connection is not None:
            self._connection.execute("select pg_advisory_unlock_all()")

    async def _quiet(self, connection: psycopg.Connection[Any]) -> None:
        """A tick, or less: a server that stops says so, and then the socket is readable."""
        waits = [
            asyncio.ensure_future(self._pause(_TICK)),
            asyncio.ensure_future(readable(connection)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
