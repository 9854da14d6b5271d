"""Digests of what is to be pushed, several files at a time: hashing releases the GIL."""

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from serve.cli.pieces import UploadPiece, unreadable
from serve.core.errors import Conflict
from serve.core.versions import VersionFile

CHUNK = 1 << 20  # bytes that are read at a time


class Stamp(NamedTuple):
    """What changes when a file is written again: its size, time and inode."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, file: BinaryIO | FileIO) -> "Stamp":
        """The open file's."""
        status = os.fstat(file.fileno())
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class Blob:
    """A file with its digest, and where its bytes are; `stamp` is None for bytes in memory."""

    file: VersionFile
    origin: Path | bytes
    stamp: Stamp | None = None

    def open(self) -> BinaryIO:
        """The file as it was when it got its digest; `Conflict` when it has changed since."""
        assert isinstance(self.origin, Path)
        try:
            file = self.origin.open("rb")
        except OSError as error:
            raise unreadable(self.origin, error) from error
        if Stamp.of(file) != self.stamp:
            file.close()
            raise changed(self.file.path)
        return file


def changed(path: str) -> Conflict:
    """A file that somebody writes while it is pushed."""
    return Conflict(
        f"'{path}' changed during the push",
        why="its digest no longer matches its content",
        try_this="push again when no program writes to the file",
    )


def digest(pieces: Sequence[UploadPiece], advance: Callable[[int], None]) -> tuple[Blob, ...]:
    """The pieces with their digests, in their order.

    `advance` is called from several threads with the bytes that were read. `Invalid` for a file
    that cannot be read, `Conflict` for one that changes meanwhile.
    """
    stop = threading.Event()
    workers = min(8, os.cpu_count() or 1)
    largest_first = sorted(range(len(pieces)), key=lambda i: _size(pieces[i]), reverse=True)
    with ThreadPoolExecutor(workers, "digest") as executor:
        try:
            futures = {i: executor.submit(_digest, pieces[i], advance, stop) for i in largest_first}
            return tuple(futures[i].result() for i in range(len(pieces)))
        except BaseException:  # Ctrl-C too: the threads end at their next chunk
            stop.set()
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def size_of(pieces: Sequence[UploadPiece]) -> int:
    """Bytes of all pieces, as far as they can be seen."""
    return sum(_size(piece) for piece in pieces)


def _size(piece: UploadPiece) -> int:
    if isinstance(piece.origin, bytes):
        return len(piece.origin)
    try:
        return piece.origin.stat().st_size
    except OSError:  # reading it says what is wrong
        return 0


def _digest(piece: UploadPiece, advance: Callable[[int], None], stop: threading.Event) -> Blob:
    if isinstance(piece.origin, bytes):
        found = hashlib.sha256(piece.origin).hexdigest()
        advance(len(piece.origin))
        return Blob(VersionFile(piece.path, len(piece.origin), found), piece.origin)
    try:
        with piece.origin.open("rb", buffering=0) as file:
            stamp = Stamp.of(file)
            size, found = _read(file, stamp.size, advance, stop)
            is_same = Stamp.of(file) == stamp and size == stamp.size
    except OSError as error:
        raise unreadable(piece.origin, error) from error
    if not is_same and not stop.is_set():
        raise changed(piece.path)
    return Blob(VersionFile(piece.path, size, found), piece.origin, stamp)


def _read(
    file: FileIO, most: int, advance: Callable[[int], None], stop: threading.Event
) -> tuple[int, str]:
    """Bytes that were read and their digest; less than all once `stop` is set.

    Of a file that grows, little more than `most` bytes are read.
    """
    hashed, size = hashlib.sha256(), 0
    buffer = memoryview(bytearray(CHUNK))
    while not stop.is_set() and size <= most and (count := file.readinto(buffer)):
        hashed.update(buffer[:count])
        size += count
        advance(count)
    return size, hashed.hexdigest()
