"""What our processes use: CPU, memory and open files, read from /proc when Prometheus asks.

One process reads them for all, so they are there even while a worker hangs, and no worker spends
time on them. Every number is kept apart by the label `source`, CPU seconds too: a sum over workers
would hide the one that is busy, and would fall when one restarts. A series of its own begins again
at zero with its process, which `rate()` understands: `sum(rate(servegate_process_cpu_seconds_total
[1m]))` is the whole.

The proportional size (PSS) is the one to add up: a page that n processes share counts 1/n in each.
The resident size counts it in full in each. See proc(5).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")  # in a second
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """One process. Sizes in bytes; `started` is Unix time; PSS is None where it may not be read."""

    cpu_seconds: float
    resident: int
    proportional: int | None
    open_files: int
    started: float

    @staticmethod
    def of(pid: int) -> "Usage | None":
        """As of now; None if the process is gone or belongs to somebody else."""
        folder = _PROC / str(pid)
        try:
            text = (folder / "stat").read_text(errors="replace")
            fields = text.rpartition(")")[2].split()  # from the third on
            return Usage(
                cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
                resident=int(fields[21]) * _PAGE,
                proportional=_proportional(folder),
                open_files=len(os.listdir(folder / "fd")),  # noqa: PTH208 - names alone will do
                started=_boot_time() + int(fields[19]) / _TICKS,
            )
        except OSError:
            return None


def families(processes: Mapping[str, int]) -> tuple[Metric, ...]:
    """The numbers of these processes: process ids by the name of the source."""
    cpu = CounterMetricFamily(
        "servegate_process_cpu_seconds",
        "CPU time of the process, user and system, in seconds",
        labels=_SOURCE,
    )
    resident = _gauge("servegate_process_resident_bytes", "Resident memory (RSS)")
    proportional = _gauge(
        "servegate_process_proportional_bytes",
        "Proportional memory (PSS): shared pages are divided among processes",
    )
    files = _gauge("servegate_process_open_files", "Open file descriptors")
    started = _gauge(
        "servegate_process_start_time_seconds", "Unix time at which the process started"
    )
    for source, pid in processes.items():
        if (usage := Usage.of(pid)) is not None:
            cpu.add_metric([source], usage.cpu_seconds)
            resident.add_metric([source], usage.resident)
            files.add_metric([source], usage.open_files)
            started.add_metric([source], usage.started)
            if usage.proportional is not None:
                proportional.add_metric([source], usage.proportional)
    return cpu, resident, proportional, files, started


_SOURCE = ("source",)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_SOURCE)


def _proportional(folder: Path) -> int | None:
    """PSS in bytes. The kernel walks all mappings for it: about a millisecond for a worker."""
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
    except OSError:  # gone, another user's, or a kernel without it
        return None
    sizes = (int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return next((size * 1024 for size in sizes), None)


@cache
def _boot_time() -> int:
    """Unix time of the boot, as the kernel reckons it when it is first asked.

    It reckons from the clock. Once that is set, a process would seem to be a new one.
    """
    with (_PROC / "stat").open() as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
