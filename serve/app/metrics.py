"""The metrics port of one machine: what all workers and control count, and what they use.

What our processes use: CPU, memory and open files, read from /proc when Prometheus asks.

One process reads them for all, so they are there even while a worker hangs, and no worker spends
time on them. Every number is kept apart by the label `source`, CPU seconds too: a sum over workers
would hide the one that is busy, and would fall when one restarts. A series of its own begins again
at zero with its process, which `rate()` understands: `sum(rate(servegate_process_cpu_seconds_total
[1m]))` is the whole.

The proportional size (PSS) is the one to add up: a page that n processes share counts 1/n in each.
The resident size counts it in full in each. See proc(5).
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.app.http_server import HttpServer
from serve.app.internal_http import InternalConnection
from serve.app.probes import Probes
from serve.processes import start_time
from serve.telemetry import CONTENT_TYPE
from serve.wire.totals import SourceReading, Totals

# --- what our processes use -----------------------------------------------------------------------


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


# --- the metrics port of one machine --------------------------------------------------------------


_log = logging.getLogger("servegate.metrics")
PATIENCE = 2.0  # seconds for one answer


class Scrape:
    """Asks every source for its numbers: workers on Unix sockets, others where they are, by name.

    `own` are numbers of this process; `processes` says which further ones of ours there are, by
    pid.
    """

    def __init__(
        self,
        workers: Mapping[str, Path],
        others: Mapping[str, str | Path],
        processes: Callable[[], Mapping[str, int]],
        *,
        own: Callable[[], bytes] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._own = own
        self._workers = workers
        self._others = others
        self._processes = processes
        self._patience = patience
        self._totals = Totals()
        self._one_at_a_time = asyncio.Lock()  # an older reading must not overtake a newer one

    def __repr__(self) -> str:
        return f"<Scrape of {sorted({*self._workers, *self._others})}>"

    async def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        async with self._one_at_a_time:
            readings: dict[str, SourceReading] = {}
            if self._own is not None:
                readings["supervisor"] = SourceReading(self._own().decode())
            pids = dict(self._processes())
            async with asyncio.TaskGroup() as tasks:
                for name, path in self._workers.items():
                    tasks.create_task(self._ask_worker(name, path, readings, pids))
                for name, url in self._others.items():
                    tasks.create_task(self._ask_other(name, url, readings))
            taken = [name for name in sorted(readings) if self._take(name, readings[name])]
            totals = self._totals.text(taken)
        return totals.encode() + _text(families(dict(sorted(pids.items()))))

    def _take(self, name: str, reading: SourceReading) -> bool:
        """Add up what a source says; whether it can be read."""
        try:
            self._totals.take(name, reading)
        except ValueError as error:
            _log.warning("cannot read the metrics of %s: %s", name, error)
            return False
        return True

    async def _ask_worker(
        self, name: str, path: Path, readings: dict[str, SourceReading], pids: dict[str, int]
    ) -> None:
        async with InternalConnection(path) as line:
            text = await _get(line, name, "/metrics", self._patience)
            if (pid := line.listener) is not None:
                pids[name] = pid
                if text is not None and (started := start_time(pid)) is not None:
                    readings[name] = SourceReading(text, life=(pid, started))

    async def _ask_other(
        self, name: str, where: str | Path, readings: dict[str, SourceReading]
    ) -> None:
        async with InternalConnection(where) as line:
            if (text := await _get(line, name, "/metrics", self._patience)) is not None:
                readings[name] = SourceReading(text)


@contextlib.asynccontextmanager
async def serving_metrics(
    port: socket.socket, scrape: Scrape, probes: Probes, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve `/metrics` and the probes on a bound socket."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        status, media = 404, "text/plain"
        body = b"see /metrics, /livez and /readyz\n"
        if scope["path"] == "/metrics":
            status, media, body = 200, CONTENT_TYPE, await scrape.text()
        elif probe := await probes.answer(scope["path"]):
            status, body = probe[0], f"{probe[1]}\n".encode()
        headers = [(b"content-type", media.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = HttpServer(answer, tls=tls, timeout_graceful_shutdown=1)
    serving = asyncio.create_task(server.serve(sockets=[port]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def answers(where: str | Path, target: str = "/livez") -> bool:
    """Whether a process of ours is well: there is a good answer within 2 s."""
    async with InternalConnection(where) as line:
        return await _get(line, str(where), target, PATIENCE) is not None


async def _get(line: InternalConnection, name: str, target: str, patience: float) -> str | None:
    """The text of a good answer in time; a source without one is left out until it has one."""
    try:
        async with asyncio.timeout(patience):
            answer = await line.get(target)
        if answer.status != 200:
            raise ConnectionError(f"status {answer.status}")
        return answer.body.decode()
    except (OSError, ValueError) as error:
        _log.debug("no response from %s: %s", name, error or type(error))
        return None


class _Families(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Families(tuple(metrics)))
    return generate_latest(registry)
