"""What the data planes of a simulated fleet serve, seen in the snapshots that they keep on disk.

A worker writes its snapshot down when it has swapped it in. So nothing that is measured is asked.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from loadtests.bench.fleet_fakes import name_of
from serve.app.paths import SNAPSHOT_FILE

LABEL = "stable"
PATIENCE = 180.0  # seconds for anything
_LOOK = 0.002  # seconds between two looks at the files


class Planes:
    """The data planes: what they serve, as they have written it down.

    `check` raises when there is nothing to wait for any more.
    """

    def __init__(self, folders: Iterable[Path], check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._files = [folder / SNAPSHOT_FILE for folder in folders]
        self._known: dict[Path, tuple[tuple[int, int], bytes]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def read(self, file: Path) -> bytes:
        """A data plane's snapshot; empty before the first."""
        try:
            status = file.stat()
            stamp = (status.st_ino, status.st_mtime_ns)
            if file not in self._known or self._known[file][0] != stamp:
                self._known[file] = stamp, file.read_bytes()
        except FileNotFoundError:
            return b""
        return self._known[file][1]

    @property
    def newest(self) -> bytes:
        """The snapshot of the first."""
        return self.read(self._files[0])

    async def all(self, holds: Callable[[bytes], bool], what: str) -> float:
        """Wait until every snapshot holds; gives when, by `time.monotonic`."""
        until = time.monotonic() + PATIENCE
        left = dict.fromkeys(self._files, b"-")  # what was looked at last
        while left:
            for file, last in tuple(left.items()):
                data = self.read(file)
                if data is not last:
                    left[file] = data
                    if holds(data):
                        del left[file]
            self._check()
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{len(left)} data planes did not see this within {PATIENCE} s: {what}"
                )
            if left:
                await asyncio.sleep(_LOOK)
        return time.monotonic()


def newer(than: bytes, holds: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Whether a snapshot is of a later generation than that one, and holds."""
    before = generation(than)
    return lambda data: generation(data) > before and holds(data)


def generation(data: bytes) -> int:
    """Of a snapshot; 0 before the first."""
    found = re.search(rb'"generation":(\d+)', data)
    return int(found[1]) if found else 0


def names_all(replicas: int) -> Callable[[bytes], bool]:
    """Whether a snapshot names so many replicas."""
    return lambda data: data.count(b'"address":') == replicas


def calls_all(replicas: int, targets: int) -> Callable[[bytes], bool]:
    """Whether all these versions may be called on so many replicas."""

    def holds(data: bytes) -> bool:
        if not names_all(replicas)(data):
            return False
        page = json.loads(data)
        found = [one for model in page["models"].values() for one in model["targets"].values()]
        sizes = [len(names) for names in page["holders"]]
        return len(found) == targets and all(sizes[one["replicas"]] == replicas for one in found)

    return holds


def named(number: int, *, times: int) -> Callable[[bytes], bool]:
    """How often a snapshot names a replica: as one that there is, and as one that is called."""
    return lambda data: bool(data) and data.count(b'"%s"' % name_of(number).encode()) == times


def labelled(version: int) -> Callable[[bytes], bool]:
    """Whether the label names this version."""
    return lambda data: b'"%s":%d' % (LABEL.encode(), version) in data
