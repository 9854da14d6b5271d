"""Objects: bytes under keys, as a folder or a bucket keeps them.

Keys are paths with `/` between their parts. An object is there whole or not at all.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a listing: its size in bytes, and when it was written (seconds, epoch)."""

    key: str
    size: int
    at: float


class Objects(Protocol):
    """One place that keeps objects. `NoSpace` when it is full, `Unavailable` when it fails."""

    async def size(self, key: str) -> int | None:
        """The bytes of an object; None when there is none."""

    async def move_in(self, key: str, path: Path, size: int) -> None:
        """Make the file, of this size, an object, or replace it; the file may be gone then."""

    async def put(self, key: str, data: bytes) -> None:
        """Write a small object, or replace it."""

    async def put_new(self, key: str, data: bytes) -> bool:
        """Write a small object unless there is one; whether it was written. It is atomic."""

    def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The object from byte `start` on, in pieces; `NotFound` when there is none."""

    def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        """Every object whose key starts with these whole parts, in any order."""

    async def remove(self, key: str) -> None:
        """Take an object away; one that is not there is no error."""

    def path(self, key: str) -> Path | None:
        """Where the object lies, or would lie, on this machine; None for a bucket."""
