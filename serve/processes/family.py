"""The memory of a child and its own children: all processes of the session that it leads.

Exact is the sum of the proportional set sizes: a page that several processes map counts as one, in
parts. The kernel walks the page tables for it, some milliseconds for each GiB; so the resident
sizes are asked first, which count such pages several times and are never less.
Source: /proc/PID/statm and /proc/PID/smaps_rollup, proc(5).
"""

import os
from pathlib import Path

from serve.processes.table import row

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Family:
    """The processes of one session. Those of other sessions are looked at only once."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._members: set[int] = set()
        self._others: set[int] = set()

    def __repr__(self) -> str:
        return f"<Family of {self._leader}: {len(self._members)} processes>"

    def exceeds(self, limit: int) -> bool:
        """Whether they take more bytes than that."""
        return self.resident() > limit and self.memory() > limit

    def memory(self) -> int:
        """Bytes that all of them take now."""
        self._look()
        return sum(_proportional(pid) for pid in self._members)

    def resident(self) -> int:
        """Bytes that all of them take now, at most: what they share counts for each."""
        self._look()
        return sum(_resident(pid) for pid in self._members)

    def _look(self) -> None:
        """Find the processes that are new."""
        alive = {int(name) for name in os.listdir(_PROC) if name.isdecimal()}  # noqa: PTH208
        self._members &= alive
        self._others &= alive
        for pid in alive - self._members - self._others:
            found = row(pid)
            if found is not None:
                (self._members if found.session == self._leader else self._others).add(pid)


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):  # it has just ended
        return 0


def _proportional(pid: int) -> int:
    try:
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except PermissionError:
        return _resident(pid)
    except OSError:  # it has just ended
        pass
    return 0
