"""Leadership: of all control planes on one store, one works; the others stand by.

| store      | the lock                                                     | who has died lets go |
|------------|--------------------------------------------------------------|----------------------|
| SQLite     | a file's, in the state folder                                | at once              |
| PostgreSQL | an advisory one, held by a connection that does nothing else | within 11 s          |

While PostgreSQL is gone nobody leads, and nobody can begin to: `lost` is set, and cleared when the
lock could be taken again. If somebody else was faster, `lost` stays set and `keep` returns: what
this process knows is then of the past, so it must end.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from serve.control.storage.database import is_postgres
from serve.control.storage.limits import LIMITS, StoreTimeouts
from serve.core.errors import CannotStart
from serve.processes import hold_lock

TICK = 1.0  # seconds between two looks at the lock
Pause = Callable[[float], Awaitable[None]]


class Leadership(Protocol):
    """Who leads. `lost` is set while it is not certain that this process does."""

    lost: asyncio.Event

    async def try_acquire(self) -> bool:
        """Lead if nobody else does; `Unavailable` when nobody can tell."""

    async def acquire(self) -> None:
        """Wait until this process leads, however long another one lives or nobody can tell."""

    async def keep(self) -> None:
        """Watch over it, while leading; returns when another process leads."""

    async def release(self) -> None:
        """Let another one lead."""


def leadership_of(
    where: Path | str, lock: Path, *, pause: Pause = asyncio.sleep, limits: StoreTimeouts = LIMITS
) -> Leadership:
    """How to lead on the store `where`; `lock` is the file for a store in a file."""
    if not is_postgres(where):
        return FileLeadership(lock, pause=pause)
    try:
        from serve.control.storage.advisory import AdvisoryLeadership
    except ImportError as error:
        raise CannotStart(
            "PostgreSQL cannot be used as the store",
            why=f"the driver is missing: {error}",
            try_this="pip install '.[postgres]' in a checkout of Servegate",
        ) from error
    return AdvisoryLeadership(str(where), pause=pause, limits=limits)


class FileLeadership:
    """The lock of a file, which the kernel takes back when the process ends."""

    def __init__(self, path: Path, *, pause: Pause = asyncio.sleep) -> None:
        self.lost = asyncio.Event()
        self.lost.set()
        self._path = path
        self._pause = pause
        self._held = contextlib.ExitStack()

    def __repr__(self) -> str:
        return f"<FileLeadership {self._path}{' lost' if self.lost.is_set() else ''}>"

    async def try_acquire(self) -> bool:
        """See `Leadership`."""
        try:
            self._held.enter_context(hold_lock(self._path))
        except CannotStart:
            return False
        self.lost.clear()
        return True

    async def acquire(self) -> None:
        """See `Leadership`."""
        while not await self.try_acquire():
            await self._pause(TICK)

    async def keep(self) -> None:
        """See `Leadership`: nobody takes a file's lock away."""
        await asyncio.get_running_loop().create_future()

    async def release(self) -> None:
        """See `Leadership`."""
        self._held.close()
        self.lost.set()
