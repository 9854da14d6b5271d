"""Durable files: on the disk before they have their name, and whole or not there at all.

A file is written as a draft, synced, and only then given its name; the folder is synced last, so
that the name outlives a loss of power too (fsync(2), notes). Drafts of a crash have names that
start with a dot, and nobody reads those.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from serve.core.errors import NoSpace, Unavailable

DRAFT = ".draft-"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk:
    """The calls that fail when a disk is full; tests have one that is."""

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """As pwrite(2): how many bytes were taken."""
        return os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """As fsync(2)."""
        os.fsync(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """As link(2): FileExistsError when the target is there."""
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        """As rename(2): replaces the target."""
        source.rename(target)

    def write_all(self, descriptor: int, data: bytes, offset: int = 0) -> None:
        """Write every byte."""
        view = memoryview(data)
        while view:
            count = self.write(descriptor, view, offset)
            view, offset = view[count:], offset + count

    def put(self, target: Path, data: bytes, *, drafts: Path, mode: int = 0o600) -> None:
        """Write a small file, or replace it."""
        with self._drafted(data, drafts, mode) as draft:
            self.rename(draft, target)
        self.sync_folder(target.parent)

    def put_new(self, target: Path, data: bytes, *, drafts: Path, mode: int = 0o600) -> bool:
        """Write a small file unless there is one of this name; whether it was written."""
        with self._drafted(data, drafts, mode) as draft:
            try:
                self.link(draft, target)
            except FileExistsError:
                return False
        self.sync_folder(target.parent)
        return True

    def sync_folder(self, folder: Path) -> None:
        """Let what was named or renamed in a folder outlive a loss of power."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _drafted(self, data: bytes, folder: Path, mode: int) -> Iterator[Path]:
        draft = draft_in(folder)
        try:
            descriptor = create(draft, mode)
            try:
                self.write_all(descriptor, data)
                self.sync(descriptor)
            finally:
                os.close(descriptor)
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def draft_in(folder: Path) -> Path:
    """A name for a draft, which nobody else has."""
    return folder / f"{DRAFT}{secrets.token_hex(8)}"


def create(path: Path, mode: int = 0o600) -> int:
    """A descriptor of a new file; FileExistsError when there is anything of this name."""
    return os.open(path, _NEW, mode)


@contextlib.contextmanager
def telling(what: str) -> Iterator[None]:
    """Tell in words what the disk refuses: NoSpace, or Unavailable for everything else."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise NoSpace(
                f"there is no disk space left for {what}",
                why=why,
                try_this="free some and try again",
            ) from error
        raise Unavailable(f"{what} cannot be read or written", why=why) from error
