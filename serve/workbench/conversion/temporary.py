"""Folders for a while, and what killed processes have left of such.

Each is locked as long as it is in use. The kernel lets go of the lock when a process ends, in
whatever way, so a folder of that name that nobody holds is a left-over. Where a file system has no
locks, nothing is swept.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_YOUNG = 60.0  # seconds in which a folder may be there that is not locked yet
_NAME = "[0-9a-f]{12}"


@contextmanager
def temporary(parent: Path, prefix: str, *, mode: int = 0o700) -> Iterator[Path]:
    """An empty folder below `parent`, removed at the end unless it was moved away.

    What others have left there under the same prefix is removed first.
    """
    sweep(parent, prefix, older_than=time.time() - _YOUNG)
    folder = parent / f"{prefix}{uuid4().hex[:12]}"
    folder.mkdir(mode)
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(parent: Path, prefix: str, *, older_than: float) -> None:
    """Remove folders of that prefix that nobody holds, were they made before that time."""
    name = re.compile(re.escape(prefix) + _NAME)
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove(Path(entry.path), older_than)


def _remove(folder: Path, older_than: float) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(lock)
        if found.st_uid == os.getuid() and found.st_mtime < older_than:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
