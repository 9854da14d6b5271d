"""The store: what people have decided, and every change they made.

Theory. `settings` holds the present body of each thing (a route, a label, a model's settings),
keyed by kind and key. `revisions` holds one row for every change, in order, with what was there
before and after: it is only ever appended to. Both are written in one transaction, and a thing's
revision number is its ETag. `counters` holds the generation of the last snapshot, which must keep
rising over restarts, and the gateway's random id. Where all this is kept is in `database.py`.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from serve.control.storage.database import open_database
from serve.control.storage.limits import LIMITS, StoreTimeouts
from serve.control.storage.schema import IDENTITY, counters, revisions, settings, upgrade
from serve.core.errors import CannotStart, Invalid, PreconditionFailed, Unavailable
from serve.core.texts import printable

T = TypeVar("T")
TICK = 1.0  # seconds until what other processes have written is noticed, at the latest
_TURN = 3.0  # seconds that a call waits for the calls before it
Key = tuple[str, str]  # kind, key


def etag(revision: int) -> str:
    """The entity tag of the state that a revision wrote, quotes included; 0 is "never set"."""
    return f'"{revision}"'


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """The present body of one thing, and the revision that wrote it."""

    body: Any
    revision: int

    @property
    def etag(self) -> str:
        """The entity tag of this state, quotes included."""
        return etag(self.revision)


@dataclass(frozen=True, slots=True)
class StoreEdit:
    """One edit: `after` is a JSON value, or None to delete. `if_match` is an ETag or empty."""

    kind: str
    key: str
    after: Any
    author: str
    reason: str = ""
    if_match: str = ""


class Store:
    """The store of one gateway, in a file or behind a PostgreSQL URL.

    Calls run in a thread, one at a time. `Unavailable` comes within seconds while the database is
    gone; the next call after its return succeeds. `clock` tells seconds of the epoch.
    """

    def __init__(
        self,
        where: Path | str,
        *,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        limits: StoreTimeouts = LIMITS,
    ) -> None:
        self._clock = clock
        self._pause = pause
        self._database = open_database(where, limits)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Store {self._database.name}>"

    def migrate(self) -> None:
        """Bring the schema up to date, from nothing or from any earlier version."""
        try:
            with self._database.writing(patient=True) as connection:
                upgrade(connection)
        except sa.exc.SQLAlchemyError as error:
            raise CannotStart(
                f"the store {self._database.name} cannot be read",
                why=_reason(error),
                try_this=self._database.advice,
            ) from error

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    async def read(self) -> dict[Key, StoredEntry]:
        """Everything that people have decided, by kind and key."""
        return await self._run(self._read)

    async def apply(self, change: StoreEdit) -> int:
        """Write one change and its revision; `PreconditionFailed` when `if_match` is stale."""
        (revision,) = await self.apply_all([change])
        return revision

    async def apply_all(self, changes: Sequence[StoreEdit]) -> tuple[int, ...]:
        """Write all of these changes, in their order, or none; gives their revisions."""
        for change in changes:
            _require_text(change)
        return await self._run(lambda: self._apply_all(changes))

    async def history(
        self, *, kind: str = "", key: str = "", before: int = 0, limit: int = 100
    ) -> list[Any]:
        """The newest revisions first, of all things or of one; `before` leaves newer ones out."""
        return await self._run(lambda: self._history(kind, key, before, limit))

    async def revision(self, number: int) -> Any:
        """One row of the history; None when there is none."""
        return await self._run(lambda: self._revision(number))

    async def newest(self) -> int:
        """The number of the last revision; 0 in a new store."""
        return await self._run(self._newest)

    async def changed(self, since: int) -> int:
        """Wait until there is a revision above `since`, of any process; gives the newest.

        Each `TICK` somebody looks, so a database that was gone is no more than that behind.
        """
        while True:
            with contextlib.suppress(Unavailable):
                newest = await self.newest()
                if newest > since:
                    return newest
            await self._wait()

    async def next_generation(self, at_least: int) -> int:
        """A generation above every one given out before, and not below `at_least`."""
        return await self._run(lambda: self._next_generation(at_least))

    async def identity(self) -> str:
        """The gateway's random id, the same for all control planes of this store; made once."""
        return await self._run(self._identity)

    async def _wait(self) -> None:
        """Until a tick has passed, or another process says that it has written."""
        waits = [
            asyncio.ensure_future(self._pause(TICK)),
            asyncio.ensure_future(self._database.announcement()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for wait in done:
            wait.result()

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with self._turn():
                return await asyncio.to_thread(work)
        except (sa.exc.SQLAlchemyError, ValueError) as error:
            raise Unavailable(
                f"the store {self._database.name} does not answer", why=_reason(error)
            ) from error

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_TURN):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable(
                f"the store {self._database.name} does not answer",
                why="earlier requests still wait for it",
            ) from None
        try:
            yield
        finally:
            self._lock.release()

    def _read(self) -> dict[Key, StoredEntry]:
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(settings)).all()
        return {
            (row.kind, row.key): StoredEntry(json.loads(row.body), row.revision) for row in rows
        }

    def _apply_all(self, changes: Sequence[StoreEdit]) -> tuple[int, ...]:
        numbers: tuple[int, ...] | None = None
        try:
            with self._database.writing() as connection:
                written = [self._apply(connection, change) for change in changes]
                self._database.announce(connection)
                numbers = tuple(written)
        except sa.exc.SQLAlchemyError as error:
            if numbers is None:
                raise
            raise Unavailable(
                f"the connection to the store {self._database.name} failed during a commit",
                why=_reason(error),
                try_this="read the object again; the change may have been stored",
            ) from error
        return numbers

    def _apply(self, connection: sa.Connection, change: StoreEdit) -> int:
        where = (settings.c.kind == change.kind) & (settings.c.key == change.key)
        present = connection.execute(sa.select(settings).where(where)).first()
        state = etag(present.revision if present else 0)
        if change.if_match and change.if_match not in (state, "*"):
            raise PreconditionFailed(f"{change.kind} '{change.key}'", state)
        after = None if change.after is None else json.dumps(change.after, sort_keys=True)
        revision = connection.execute(
            sa.insert(revisions).values(
                at=self._clock(),
                author=printable(change.author),
                reason=printable(change.reason),
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

    def _history(self, kind: str, key: str, before: int, limit: int) -> list[Any]:
        query = sa.select(revisions).order_by(revisions.c.id.desc()).limit(limit)
        if kind:
            query = query.where(revisions.c.kind == kind)
        if key:
            query = query.where(revisions.c.key == key)
        if before:
            query = query.where(revisions.c.id < before)
        with self._database.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def _revision(self, number: int) -> Any:
        with self._database.reading() as connection:
            query = sa.select(revisions).where(revisions.c.id == number)
            row = connection.execute(query).first()
        return dict(row._mapping) if row else None

    def _newest(self) -> int:
        with self._database.reading() as connection:
            return connection.execute(sa.select(sa.func.max(revisions.c.id))).scalar() or 0

    def _next_generation(self, at_least: int) -> int:
        with self._database.writing() as connection:
            where = counters.c.name == "generation"
            last = connection.execute(sa.select(counters.c.value).where(where)).scalar() or 0
            value = max(last + 1, at_least)
            connection.execute(sa.delete(counters).where(where))
            connection.execute(sa.insert(counters).values(name="generation", value=value))
        return value

    def _identity(self) -> str:
        where = counters.c.name == IDENTITY
        with self._database.writing() as connection:
            value = connection.execute(sa.select(counters.c.value).where(where)).scalar()
            if value is None:
                value = 1 + secrets.randbelow(2**63 - 1)
                connection.execute(sa.insert(counters).values(name=IDENTITY, value=value))
        return f"{value:016x}"


def _require_text(change: StoreEdit) -> None:
    """A text with a NUL, or no text at all, is refused alike by whatever database there is."""
    for text in (change.key, change.author, change.reason):
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise Invalid(
                "a name, an author or a reason is not valid text",
                why="it contains NUL or an unpaired surrogate",
            )


def _reason(error: Exception) -> str:
    """The database's own words, its first line."""
    return (str(getattr(error, "orig", None) or error) or type(error).__name__).splitlines()[0]
