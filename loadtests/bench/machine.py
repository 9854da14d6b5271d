"""The machine that measures: what it is, and which cores do what.

The proxy gets a core for itself, so that it is the bottleneck; generator, upstream and all the rest
share the others. On two cores that is one each.
"""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cores:
    """Commands that pin what follows them; empty on a machine with one core."""

    proxy: tuple[str, ...]
    load: tuple[str, ...]
    upstream: tuple[str, ...]
    watched: int | None = None  # the proxy's core


def share_out(cores: Sequence[int]) -> Cores:
    """The last core is the proxy's; with four or more, the generator has one to itself, too."""
    if len(cores) < 2:
        return Cores((), (), ())
    *rest, proxy = cores
    load, upstream = (rest[-1:], rest[:-1]) if len(rest) >= 3 else (rest, rest)
    return Cores(_pin([proxy]), _pin(load), _pin(upstream), proxy)


def cores() -> Cores:
    """For the cores that this process may use."""
    return share_out(sorted(os.sched_getaffinity(0)))


def busy(core: int) -> float:
    """Seconds that a core has spent in processes, of all users, since the machine started."""
    text = Path("/proc/stat").read_text()
    found = re.search(rf"^cpu{core} (\d+) (\d+) (\d+) ", text, re.MULTILINE)
    return sum(map(int, found.groups())) / os.sysconf("SC_CLK_TCK") if found else 0.0


def describe() -> str:
    """The processor, its cores and the kernel, for the table's heading."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    model = found[1].strip() if found else platform.machine()
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release()}"


def _pin(numbers: Sequence[int]) -> tuple[str, ...]:
    return ("taskset", "-c", ",".join(map(str, numbers)))
