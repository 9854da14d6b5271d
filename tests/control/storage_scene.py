"""Files, manifests and full disks for the tests of storage and uploads."""

import errno
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TypeVar

from serve.control.artifacts.durable import Disk
from serve.control.uploads.upload import Upload
from serve.control.uploads.uploads import Uploads
from serve.core.versions import Manifest, Provenance, VersionFile

T = TypeVar("T")
DATA = bytes(range(256)) * 40
ENOSPC = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(data: bytes = DATA, path: str = "1/model.onnx") -> VersionFile:
    return VersionFile(path, len(data), digest(data))


def written(path: Path, data: bytes = DATA) -> Path:
    path.write_bytes(data)
    return path


def manifest(version: int = 1, *, model: str = "digits", author: str = "ada") -> Manifest:
    files = (file(path=f"{version}/model.onnx"),)
    return Manifest(model, version, model, "0" * 64, "1" * 64, files, Provenance(author, 1.0))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def collected(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def listed(stream: AsyncIterator[T]) -> list[T]:
    return [one async for one in stream]


async def sent(uploads: Uploads, upload: Upload) -> int:
    """Go on with the one blob of an upload."""
    start = await uploads.offset(upload.id, digest(DATA))
    return await uploads.append(upload.id, digest(DATA), start, pieces(DATA[start:]))


class FullDisk(Disk):
    """A disk on which some calls find no space; `left` is how many bytes may still be written."""

    def __init__(self, *calls: str, left: int = 1 << 40) -> None:
        self.full = set(calls)
        self.left = left

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        if not self.left:
            raise ENOSPC
        count = super().write(descriptor, data[: self.left], offset)
        self.left -= count
        return count

    def sync(self, descriptor: int) -> None:
        self._refuse("sync")
        super().sync(descriptor)

    def link(self, source: Path, target: Path) -> None:
        self._refuse("link")
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._refuse("rename")
        super().rename(source, target)

    def empty(self) -> None:
        """Somebody makes room."""
        self.full, self.left = set(), 1 << 40

    def _refuse(self, call: str) -> None:
        if call in self.full:
            raise ENOSPC


def names_in(folder: Path) -> Iterable[str]:
    """The files below a folder, by their relative paths."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
