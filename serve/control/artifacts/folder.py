"""Objects in a folder. Files in it are read-only, because others have hard links to them."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

from serve.control.artifacts.durable import DRAFT, Disk, create, draft_in, telling
from serve.control.artifacts.objects import ListedObject
from serve.core.errors import CannotStart, NotFound

_READ_ONLY = 0o444
_PIECE = 1 << 20  # bytes
_FORGOTTEN = 86400.0  # seconds after which a draft is one of a crash
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderObjects:
    """A folder of objects; `disk` is how it is written."""

    def __init__(self, root: Path, *, disk: Disk | None = None) -> None:
        self._root = root.absolute()
        self._drafts = self._root / "drafts"
        self._disk = disk or Disk()
        try:
            self._drafts.mkdir(parents=True, exist_ok=True)
            _sweep(self._drafts)
        except OSError as error:
            raise CannotStart(
                f"the storage folder {self._root} cannot be created", why=str(error)
            ) from error

    def __repr__(self) -> str:
        return f"<FolderObjects {self._root}>"

    async def size(self, key: str) -> int | None:
        """The bytes of an object; None when there is none."""
        return await asyncio.to_thread(self._size, key)

    async def move_in(self, key: str, path: Path, size: int) -> None:
        """Rename the file when it lies on the same disk, copy it otherwise."""
        await asyncio.to_thread(self._move_in, key, path)

    async def put(self, key: str, data: bytes) -> None:
        """Write a small object, or replace it."""
        await asyncio.to_thread(self._put, key, data)

    async def put_new(self, key: str, data: bytes) -> bool:
        """Write a small object unless there is one; whether it was written."""
        return await asyncio.to_thread(self._put_new, key, data)

    async def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The object from byte `start` on, in pieces; `NotFound` when there is none."""
        descriptor = await asyncio.to_thread(self._open, key)
        try:
            while piece := await asyncio.to_thread(self._read, descriptor, start):
                yield piece
                start += len(piece)
        finally:
            os.close(descriptor)

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        """Every object whose key starts with these whole parts."""
        for found in await asyncio.to_thread(lambda: list(self._walk(prefix))):
            yield found

    async def remove(self, key: str) -> None:
        """Take an object away; one that is not there is no error."""
        with telling("the storage folder"):
            await asyncio.to_thread(self.path(key).unlink, missing_ok=True)

    def path(self, key: str) -> Path:
        """Where the object lies, or would lie."""
        return self._root / key

    def _size(self, key: str) -> int | None:
        with telling("the storage folder"):
            try:
                return self.path(key).stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                return None

    def _move_in(self, key: str, path: Path) -> None:
        with telling("the storage folder"):
            target = self._place(key)
            descriptor = os.open(path, _NO_FOLLOW)
            try:
                os.fchmod(descriptor, _READ_ONLY)
                self._disk.sync(descriptor)
                try:
                    self._disk.rename(path, target)
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    self._copy_in(descriptor, target)
            finally:
                os.close(descriptor)
            self._disk.sync_folder(target.parent)

    def _copy_in(self, source: int, target: Path) -> None:
        draft = draft_in(self._drafts)
        try:
            descriptor = create(draft, _READ_ONLY)
            try:
                offset = 0
                while piece := os.pread(source, _PIECE, offset):
                    self._disk.write_all(descriptor, piece, offset)
                    offset += len(piece)
                self._disk.sync(descriptor)
            finally:
                os.close(descriptor)
            self._disk.rename(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def _put(self, key: str, data: bytes) -> None:
        with telling("the storage folder"):
            self._disk.put(self._place(key), data, drafts=self._drafts, mode=_READ_ONLY)

    def _put_new(self, key: str, data: bytes) -> bool:
        with telling("the storage folder"):
            target = self._place(key)
            return self._disk.put_new(target, data, drafts=self._drafts, mode=_READ_ONLY)

    def _open(self, key: str) -> int:
        with telling("the storage folder"):
            try:
                return os.open(self.path(key), _NO_FOLLOW)
            except FileNotFoundError as error:
                raise NotFound(f"the storage has no '{key}'") from error

    def _read(self, descriptor: int, offset: int) -> bytes:
        with telling("the storage folder"):
            return os.pread(descriptor, _PIECE, offset)

    def _place(self, key: str) -> Path:
        """Where the object comes to lie, in a folder that is there to stay."""
        target = self.path(key)
        new = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in new:
            self._disk.sync_folder(folder.parent)
        return target

    def _walk(self, prefix: str) -> Iterator[ListedObject]:
        with telling("the storage folder"):
            for folder, _, names in os.walk(self._root / prefix):
                for name in names:
                    path = Path(folder) / name
                    try:
                        about = path.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    key = path.relative_to(self._root).as_posix()
                    yield ListedObject(key, about.st_size, about.st_mtime)


def _sweep(drafts: Path) -> None:
    """Take away the drafts of crashes; a process beside this one may be writing newer ones."""
    for path in drafts.glob(f"{DRAFT}*"):
        if time.time() - path.stat().st_mtime > _FORGOTTEN:
            path.unlink(missing_ok=True)
