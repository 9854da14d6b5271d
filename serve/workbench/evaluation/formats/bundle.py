"""Bundles: several files with their paths, sent one by one or as a ZIP archive.

Paths are names only: nothing is ever unpacked to where they point.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol

from serve.core.errors import Invalid
from serve.workbench.evaluation.rows import LARGEST_CELL, LONGEST_TEXT, MOST_ROWS, checked_text

MOST_FILES = MOST_ROWS + 1000
_LARGEST_DIRECTORY = 64 << 20  # bytes of a ZIP archive's list of its files
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"
_TAIL = 22 + 65535 + 20 + 56
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,  # a compression that is not there
    OSError,
)


class Bundle(Protocol):
    """Files by their paths, in order."""

    def paths(self) -> Sequence[str]:
        """All of them; none goes out of the bundle."""

    def read(self, path: str) -> bytes:
        """One file; `Invalid` when it is too large or cannot be read."""


@dataclass(frozen=True, slots=True)
class BundlePart:
    """Where one file of `FileBundle` lies."""

    path: str
    start: int
    size: int


class FileBundle:
    """Files that were sent one by one and lie behind each other in one file."""

    def __init__(self, file: Path, parts: Sequence[BundlePart]) -> None:
        self._file = file
        self._parts: dict[str, BundlePart] = {}
        for part in parts:
            path = checked_path(part.path)
            if path in self._parts:
                raise _twice(path)
            self._parts[path] = part

    def __repr__(self) -> str:
        return f"<FileBundle {len(self._parts)}>"

    def paths(self) -> Sequence[str]:
        """All of them, in the order in which they were sent."""
        return tuple(self._parts)

    def read(self, path: str) -> bytes:
        """One file."""
        part = self._parts[path]
        if part.size > LARGEST_CELL:
            raise _too_large(path)
        with self._file.open("rb") as file:
            file.seek(part.start)
            return file.read(part.size)


class Zip:
    """The files of a ZIP archive; use `opened`."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in archive.infolist():
            if member.is_dir():
                continue
            path = checked_path(member.filename)
            if path in self._members:
                raise _twice(path)
            self._members[path] = member
        if len(self._members) > MOST_FILES:
            raise Invalid("the archive has too many files", why=f"at most {MOST_FILES} are allowed")

    def __repr__(self) -> str:
        return f"<Zip {len(self._members)}>"

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Zip"]:
        """The archive for as long as it is read; `Invalid` for a file that is none."""
        with path.open("rb") as file:
            _check_directory(file)
            try:
                archive = zipfile.ZipFile(file)
            except _BROKEN as error:
                raise Invalid("the file is not a readable ZIP archive", why=str(error)) from error
            with archive:
                yield cls(archive)

    def paths(self) -> Sequence[str]:
        """All of them, in the order of the archive."""
        return tuple(self._members)

    def open(self, path: str) -> IO[bytes]:
        """One file, to be read piece by piece."""
        return self._archive.open(self._members[path])

    def read(self, path: str) -> bytes:
        """One file; what its size is said to be is not believed."""
        try:
            with self.open(path) as file:
                data = file.read(LARGEST_CELL + 1)
        except _BROKEN as error:
            raise Invalid(f"'{path}' in the archive cannot be read", why=str(error)) from error
        if len(data) > LARGEST_CELL:
            raise _too_large(path)
        return data


def checked_path(path: str) -> str:
    """A relative path with `/`; `Invalid` for one that goes elsewhere."""
    parts = path.split("/")
    if len(path) > 5 * LONGEST_TEXT or not path.isprintable():
        raise Invalid(
            f"the file name {path[:60]!r} is invalid", why="it is too long or not printable"
        )
    if "\\" in path or not all(parts) or {".", ".."} & set(parts):
        raise Invalid(f"the path '{path}' is invalid", why="it must stay within its folder")
    for part in parts:
        checked_text(part, "the file name")
    return path


def _check_directory(file: BinaryIO) -> None:
    """Refuse a list of files that takes more memory than a dataset may; `zipfile` reads it all."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL))
    tail = file.read()
    at = tail.rfind(_END)
    claimed = struct.unpack_from("<I", tail, at + 12)[0] if 0 <= at <= len(tail) - 22 else 0
    wide = tail.rfind(_END_64, 0, max(at, 0))
    if 0 <= wide <= len(tail) - 56:
        claimed = max(
            struct.unpack_from("<Q", tail, wide + 40)[0], claimed if claimed < 2**32 - 1 else 0
        )
    if claimed > _LARGEST_DIRECTORY:
        raise Invalid("the archive has too many files", why=f"at most {MOST_FILES} are allowed")


def _twice(path: str) -> Invalid:
    return Invalid(f"the file '{path}' appears twice")


def _too_large(path: str) -> Invalid:
    return Invalid(f"'{path}' is too large", why=f"a file can have at most {LARGEST_CELL} bytes")
