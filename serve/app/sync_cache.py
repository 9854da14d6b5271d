"""The agent's cache: blobs by digest, beside the repository and on the same disk.

Files of delivered versions are hard links of these, and cost nothing. Blobs that no version needs
any more are kept while they fit, so that a rollback fetches nothing; the longest unused goes first.
When a blob was used is its time of access. While a version has its link, nothing of the blob is
touched, and other versions get copies: Triton starts a version anew whose files look younger, and a
further link, or a time that is set, is a change of the file under each of its names.
"""

import asyncio
import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from serve.control.deliveries.version_folder import require_digest, to_the_end
from serve.core.errors import DigestMismatch
from serve.core.versions import VersionFile

_ATTEMPTS = 2
_PIECE = 1 << 20  # bytes


class BlobOrigin(Protocol):
    """Where blobs come from when the cache does not have them."""

    async def fetch(self, file: VersionFile, target: Path) -> None:
        """Bring a blob to this path, which may hold the first part of it already."""


class Cache:
    """Blobs that were fetched from `origin`; `most` are the bytes kept of unused ones.

    `clock` is nanoseconds of the epoch.
    """

    def __init__(
        self,
        folder: Path,
        origin: BlobOrigin,
        *,
        most: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._blobs = folder / "blobs"
        self._parts = folder / "parts"
        self._origin = origin
        self._most = most
        self._clock = clock
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        for place in (self._blobs, self._parts):
            place.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"<Cache {self._blobs.parent} most={self._most}>"

    async def fetch(self, file: VersionFile, target: Path) -> None:
        """Make the path a link of the blob, or a copy of one that has its link already.

        A blob that is missing or damaged is fetched first.

        `DigestMismatch` when wrong bytes came twice.
        """
        blob = self._blobs / file.sha256
        turn = self._turns.setdefault(file.sha256, asyncio.Lock())
        async with turn:
            if not await self._has(blob, file):
                await self._bring(file, blob)
            status = await asyncio.to_thread(blob.stat)
            if status.st_nlink > 1:
                await asyncio.to_thread(_copy, blob, target)
                return
            os.utime(blob, ns=(self._clock(), status.st_mtime_ns))
            os.link(blob, target)

    def trim(self, wanted: Collection[str]) -> None:
        """Remove unused blobs beyond `most` bytes, and parts of blobs that nobody wants."""
        for part in self._parts.iterdir():
            if part.name not in wanted:
                part.unlink()
        unused = []
        for blob in self._blobs.iterdir():
            status = blob.stat()
            if status.st_nlink == 1 and blob.name not in wanted:
                unused.append((status.st_atime_ns, status.st_size, blob))
        left = sum(size for _, size, _ in unused)
        for _, size, blob in sorted(unused):
            if left <= self._most:
                break
            blob.unlink()
            left -= size

    async def _has(self, blob: Path, file: VersionFile) -> bool:
        try:
            status = await asyncio.to_thread(blob.lstat)
            if stat.S_ISREG(status.st_mode) and status.st_size == file.size:
                await require_digest(blob, file)
                return True
        except FileNotFoundError:
            return False
        except DigestMismatch:
            pass
        await asyncio.to_thread(blob.unlink)
        return False

    async def _bring(self, file: VersionFile, blob: Path) -> None:
        part = self._parts / file.sha256
        for attempt in range(1, _ATTEMPTS + 1):
            await self._origin.fetch(file, part)
            try:
                await require_digest(part, file)
                break
            except DigestMismatch:
                await asyncio.to_thread(part.unlink)
                if attempt == _ATTEMPTS:
                    raise
        await to_the_end(_keep, part, blob)


def _copy(blob: Path, target: Path) -> None:
    with blob.open("rb") as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy, _PIECE)
        os.fchmod(copy.fileno(), 0o444)
        copy.flush()
        os.fsync(copy.fileno())


def _keep(part: Path, blob: Path) -> None:
    descriptor = os.open(part, os.O_RDONLY)
    try:
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o444)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(blob)
