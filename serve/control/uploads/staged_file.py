"""Staging: the file in which one blob grows until all its bytes are there.

Every piece is written at once, at the end of the file, and hashed as it comes. What the file holds
is always a beginning of what was sent, so after a crash its length is where the blob goes on; only
the hash has to be computed anew. Calls come from several threads, one at a time gets in.
"""

import hashlib
import os
import stat
import threading
from pathlib import Path

from serve.control.artifacts.durable import Disk, create, telling
from serve.core.errors import DigestMismatch, Invalid, WrongOffset
from serve.core.versions import VersionFile
from serve.processes.failpoints import reach

_PIECE = 1 << 20  # bytes
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class Staging:
    """One growing file. `offset` is how many bytes it holds; a closed one is never written again.

    There is at most one that is not closed for a path.
    """

    def __init__(self, path: Path, file: VersionFile, *, disk: Disk) -> None:
        self.path = path
        self.offset = 0
        self.is_closed = False
        self._file = file
        self._disk = disk
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Staging {self._file.sha256[:12]} {self.offset}/{self._file.size}>"

    def load(self) -> None:
        """Go on with what an earlier process has left; read it all for the hash."""
        with self._lock, telling("a staging file"):
            self._load()

    def append(self, offset: int, piece: bytes) -> int:
        """Write a piece that starts at `offset`; gives where the next one starts.

        `WrongOffset` when somebody else was faster, `Invalid` for more than was announced,
        `NoSpace`. A piece that is refused leaves nothing behind.
        """
        with self._lock, telling("a staging file"):
            if self.is_closed or offset != self.offset:
                raise WrongOffset(self._file.sha256, self.offset)
            if offset + len(piece) > self._file.size:
                raise Invalid(
                    f"the request has too many bytes for blob {self._file.sha256[:12]}",
                    why=f"the size of the blob is {self._file.size} bytes",
                )
            self._write(piece)
            self._hash.update(piece)
            self.offset += len(piece)
        if offset == 0:
            reach("blob.first")
        return offset + len(piece)

    def seal(self) -> None:
        """Verify the digest and bring the whole file to the disk.

        `DigestMismatch`: the bytes are thrown away. `NoSpace`: it may be tried again.
        """
        with self._lock, telling("a staging file"):
            reach("blob.whole")
            if self._hash.hexdigest() != self._file.sha256:
                self._drop()
                raise DigestMismatch(
                    f"the uploaded bytes of '{self._file.path}' do not match its SHA-256",
                    why="the file may have changed during the upload",
                    try_this="push again",
                )
            try:
                descriptor = os.open(self.path, os.O_RDONLY | _FLAGS)
            except FileNotFoundError:
                self._reset()  # somebody has been at the folder
                raise WrongOffset(self._file.sha256, 0) from None
            try:
                self._disk.sync(descriptor)
            except OSError:
                self._load()  # what the kernel could not write it may have thrown away: fsync(2)
                raise
            finally:
                os.close(descriptor)
            reach("blob.checked")

    def close(self) -> None:
        """Take the file away, and never write again."""
        with self._lock, telling("a staging file"):
            self.is_closed = True
            self._drop()

    def _load(self) -> None:
        self._reset()
        try:
            descriptor = os.open(self.path, os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return
        except OSError:
            self._drop()  # a link, which nobody put there for good
            return
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= self._file.size:
                self._drop()
                return
            while piece := os.pread(descriptor, _PIECE, self.offset):
                self._hash.update(piece)
                self.offset += len(piece)
        finally:
            os.close(descriptor)

    def _write(self, piece: bytes) -> None:
        """Write at the end of the file; a torn end is cut off again."""
        try:
            descriptor = (
                os.open(self.path, os.O_WRONLY | _FLAGS) if self.offset else create(self.path)
            )
        except (FileNotFoundError, FileExistsError):
            self._load()  # somebody has been at the folder
            raise WrongOffset(self._file.sha256, self.offset) from None
        try:
            self._disk.write_all(descriptor, piece, self.offset)
        except OSError:
            os.ftruncate(descriptor, self.offset)
            if self.offset == 0:
                self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _drop(self) -> None:
        self._reset()
        self.path.unlink(missing_ok=True)

    def _reset(self) -> None:
        self.offset, self._hash = 0, hashlib.sha256()
