"""Arrivals: blobs on their way from a client into the storage, whichever uploads they belong to.

A blob grows in a staging file of its own, named by digest and size. When its last byte is there it
is verified, brought to the disk and moved into the storage. Disk work runs in a few threads of its
own: one that hashes for minutes holds up no other part of the control plane. Work that must not be
cut off in the middle (reading a file again, storing a blob) is a task that callers wait for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any, ParamSpec, TypeVar

from serve.control.artifacts.durable import Disk, telling
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.staged_file import Staging
from serve.core.errors import DigestMismatch, WrongOffset
from serve.core.versions import VersionFile
from serve.processes.failpoints import reach

P = ParamSpec("P")
T = TypeVar("T")
_QUESTIONS = 32  # that the storage is asked at one time
_THREADS = 4


class IncomingBlobs:
    """All blobs that are on their way. One process at a time may have the folder."""

    def __init__(self, folder: Path, storage: ArtifactStorage, *, disk: Disk) -> None:
        with telling("the staging folder"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._storage = storage
        self._disk = disk
        self._staged: dict[str, Staging] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._asking = asyncio.Semaphore(_QUESTIONS)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="arrivals")

    def __repr__(self) -> str:
        return f"<IncomingBlobs {list(self._staged.values())}>"

    async def has(self, file: VersionFile) -> bool:
        """Whether the storage has the blob."""
        async with self._asking:
            return await self._storage.has(file.sha256, file.size)

    async def offset(self, file: VersionFile) -> int | None:
        """Where the blob goes on; None when the storage has it.

        One of which every byte was staged before a crash is verified and stored first.
        """
        if await self.has(file):
            return None
        offset = await self.in_thread(self._staged_bytes, file)
        if offset < file.size:
            return offset
        try:
            await self._finish(file)
        except DigestMismatch:
            return 0
        return None

    async def append(self, file: VersionFile, offset: int, pieces: AsyncIterator[bytes]) -> int:
        """Take bytes of a blob; see `Uploads.append`."""
        if not await self.in_thread(self._staged_bytes, file) and await self.has(file):
            if offset != file.size:
                raise WrongOffset(file.sha256, file.size)
            return file.size
        staging = await self._staging(file)
        if offset != staging.offset:
            raise WrongOffset(file.sha256, staging.offset)
        async for piece in pieces:
            if piece:
                offset = await self.in_thread(staging.append, offset, piece)
        if offset == file.size:
            await self._finish(file)
        return offset

    async def drop(self, file: VersionFile) -> None:
        """Forget what has come of a blob; who is sending it now is told to start anew."""
        staging = self._staged.pop(_name(file), None)
        if staging is None:
            await self.in_thread(_remove, self._path(file))
        else:
            await self.in_thread(staging.close)

    async def sweep(self, needed: Iterable[VersionFile]) -> int:
        """Drop the staging files of blobs that nobody needs; gives how many."""
        return await self.in_thread(self._sweep, frozenset(map(_name, needed)))

    async def in_thread(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Disk work. It goes on when who waits for it is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **more))

    async def _staging(self, file: VersionFile) -> Staging:
        if staging := self._staged.get(_name(file)):
            return staging
        return await self._once(f"load {_name(file)}", lambda: self._load(file))

    async def _load(self, file: VersionFile) -> Staging:
        staging = Staging(self._path(file), file, disk=self._disk)
        await self.in_thread(staging.load)
        self._staged[_name(file)] = staging
        return staging

    async def _finish(self, file: VersionFile) -> None:
        await self._once(f"finish {_name(file)}", lambda: self._store(file))

    async def _store(self, file: VersionFile) -> None:
        """Verify a blob of which every byte is staged, and move it into the storage."""
        staging = await self._staging(file)
        if staging.offset < file.size:
            if not await self.has(file):  # somebody else has finished or dropped it
                raise WrongOffset(file.sha256, staging.offset)
            return
        await self.in_thread(staging.seal)
        try:
            await self._storage.add_file(staging.path, file)
            reach("blob.stored")
        except DigestMismatch:  # somebody has been at the file
            await self.drop(file)
            raise
        await self.drop(file)

    async def _once(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it, or wait for whoever is doing it; it goes on when a caller is cancelled."""
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(work())
            task.add_done_callback(lambda _: self._running.pop(name, None))
        return await asyncio.shield(task)

    def _staged_bytes(self, file: VersionFile) -> int:
        if staging := self._staged.get(_name(file)):
            return staging.offset
        with telling("a staging file"):
            try:
                about = self._path(file).stat(follow_symlinks=False)
            except FileNotFoundError:
                return 0
        return about.st_size if S_ISREG(about.st_mode) and about.st_size <= file.size else 0

    def _sweep(self, needed: Container[str]) -> int:
        with telling("the staging folder"):
            orphans = [path for path in self._folder.iterdir() if path.name not in needed]
            for path in orphans:
                path.unlink(missing_ok=True)
        return len(orphans)

    def _path(self, file: VersionFile) -> Path:
        return self._folder / _name(file)


def _name(file: VersionFile) -> str:
    return f"{file.sha256}-{file.size}"


def _remove(path: Path) -> None:
    with telling("a staging file"):
        path.unlink(missing_ok=True)
