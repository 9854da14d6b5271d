"""The kernel's table of processes, read from /proc."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process: `started` is in ticks since boot; a zombie has ended, but is not yet reaped."""

    pid: int
    is_zombie: bool
    group: int
    session: int
    started: int


def row(pid: int) -> ProcessRow | None:
    """A process, or None if there is none of that pid."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:  # gone before, or while we read
        return None
    fields = text.rpartition(")")[2].split()  # from the third on; the second may hold anything
    return ProcessRow(pid, fields[0] in "ZX", int(fields[2]), int(fields[3]), int(fields[19]))


def rows() -> Iterator[ProcessRow]:
    """All processes."""
    for name in os.listdir(_PROC):  # noqa: PTH208 - a path object for each is what costs
        if name.isdecimal() and (found := row(int(name))) is not None:
            yield found


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if it is gone."""
    found = row(pid)
    return found.started if found else None


def carries(pid: int, variable: str) -> bool:
    """The environment that a process was started with holds this `NAME=value`."""
    try:
        return variable.encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def boot() -> str:
    """Tells this boot of the machine from all others."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
