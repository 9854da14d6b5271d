"""Backup and restore of the store that the settings name: who may do it, and when.

A backup can be taken at any time. A restore wants a store on which no control plane runs: it holds
the lock of the state folder, or in PostgreSQL the lock of the one that leads.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from serve.app.paths import LOCK_FILE, store_place
from serve.control.storage import backup
from serve.control.storage.backup import Backup
from serve.control.storage.database import Database, open_database
from serve.control.storage.leadership import leadership_of
from serve.core.errors import CannotStart, NotFound
from serve.processes import hold_lock
from serve.settings import Settings


def store_name(settings: Settings) -> str:
    """The same for people, without the password."""
    return _opened(settings).name


def back_up(settings: Settings, path: Path) -> Backup:
    """Write the store to a file; `NotFound` when there is none."""
    place = store_place(settings)
    if isinstance(place, Path) and not place.exists():
        raise NotFound(f"there is no store in {place.parent}", try_this="pass --state DIR")
    database = _opened(settings)
    try:
        return backup.back_up(database, path, clock=time.time)
    finally:
        database.close()


def restore(settings: Settings, path: Path, *, replace: bool, author: str) -> Backup:
    """Fill the store from a file; `CannotStart` while a control plane runs on it."""

    async def alone() -> Backup:
        database = _opened(settings)
        try:
            async with _alone(settings, database):
                return await asyncio.to_thread(
                    backup.restore, database, path, replace=replace, author=author, clock=time.time
                )
        finally:
            database.close()

    return asyncio.run(alone())


def _opened(settings: Settings) -> Database:
    return open_database(store_place(settings))


@contextlib.asynccontextmanager
async def _alone(settings: Settings, database: Database) -> AsyncIterator[None]:
    place, lock = store_place(settings), settings.state_path / LOCK_FILE
    if isinstance(place, Path):
        with hold_lock(lock):
            yield
        return
    leadership = leadership_of(place, lock)
    if not await leadership.try_acquire():
        raise CannotStart(
            f"the store {database.name} is in use",
            why="a control plane uses it",
            try_this="stop all control planes that use it",
        )
    try:
        yield
    finally:
        await leadership.release()
