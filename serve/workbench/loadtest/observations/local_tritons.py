"""Tritons of this machine, found in /proc: whose process serves a port, and what memory it uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HERE = frozenset({"localhost", "::1"})


def is_here(host: str) -> bool:
    """Whether a host is this machine's own loopback address."""
    return host.strip("[]") in _HERE or host.startswith("127.")


def triton_on(http_port: int) -> int | None:
    """The process id of this user's tritonserver with this HTTP port, as its arguments say."""
    wanted = f"--http-port={http_port}".encode()
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # processes come and go
            if folder.stat().st_uid != os.getuid():
                continue
            program, *arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if Path(os.fsdecode(program)).name == "tritonserver" and wanted in _joined(arguments):
                return int(folder.name)
    return None


def resident(pid: int) -> int | None:
    """Bytes that a process and its children have in memory; None when it is gone."""
    sizes = [_size(one) for one in (pid, *_children(pid))]
    return None if sizes[0] is None else sum(size or 0 for size in sizes)


def _joined(arguments: list[bytes]) -> list[bytes]:
    """Arguments as `--name=value`, also where name and value are two."""
    return [*arguments, *(name + b"=" + value for name, value in pairwise(arguments))]


def _size(pid: int) -> int | None:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return None


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            yield from map(int, (thread / "children").read_text().split())
