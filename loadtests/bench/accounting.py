"""What processes cost: CPU time and memory of those that carry traffic, and of those above them.

Every proxy here is a tree of processes. Its leaves carry the traffic; what stands above them
(nginx's master, the gateway's supervisor) only keeps them running, and is accounted for apart.
Linux counts CPU time in ticks of 10 ms, so a measurement should keep a core busy for a second.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes of one proxy at one moment, by pid."""

    workers: tuple[int, ...]
    supervisors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time, user and system, in seconds."""

    workers: float
    supervisors: float

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(self.workers - earlier.workers, self.supervisors - earlier.supervisors)


def split(root: int, parents: Mapping[int, int]) -> Tree:
    """The tree below a process, out of child → parent."""
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    workers: list[int] = []
    supervisors: list[int] = []
    queue = [root]
    while queue:
        pid = queue.pop()
        below = children.get(pid, [])
        (supervisors if below else workers).append(pid)
        queue += below
    return Tree(tuple(sorted(workers)), tuple(sorted(supervisors)))


def tree(root: int) -> Tree:
    """The tree below a living process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    return split(root, parents)


def cpu(root: int) -> Cpu:
    """The CPU time that the living processes of a tree have used so far."""
    found = tree(root)
    return Cpu(_cpu(found.workers), _cpu(found.supervisors))


def memory(pids: Iterable[int]) -> float:
    """Proportional set size in MiB: a page that n processes share counts for 1/n in each."""
    total = 0
    for pid in pids:
        text = _read(pid, "smaps_rollup")
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024


def _cpu(pids: Iterable[int]) -> float:
    return TICK * sum(int(fields[11]) + int(fields[12]) for pid in pids if (fields := _stat(pid)))


def _stat(pid: int) -> list[str]:
    """The fields behind the command's name (which may hold spaces); empty when it has ended."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
