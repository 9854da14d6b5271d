"""Readings about once a second: of replicas, their GPUs, and the gateway's processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from serve.load.observations.gateway_counts import GatewayScrape
from serve.load.observations.local_tritons import is_here, resident, triton_on
from serve.load.observations.timeline import SeriesName, Timeline
from serve.load.observed import ObservedSeries
from serve.triton import metrics

_GPU = (
    ("utilization", "utilisation", "share"),
    ("memory_used", "memory", "B"),
    ("power", "power", "W"),
)


class RunReadings:
    """Everything that is read over time. `http_url` is where calls go, for a bare Triton's name."""

    def __init__(self, http_url: str) -> None:
        self._bare = urlsplit(http_url).netloc
        self._timeline = Timeline()
        self._known: dict[str, str] = {}  # replicas that were seen, and their addresses
        self._processes: dict[str, int | None] = {}
        self._read_at: float | None = None

    def __repr__(self) -> str:
        return f"<RunReadings of {', '.join(self._known) or self._bare}>"

    @property
    def series(self) -> tuple[ObservedSeries, ...]:
        """All of them."""
        return self._timeline.series

    def forget(self) -> None:
        """Begin anew: what was read until now was before the run."""
        self._timeline = Timeline()
        self._read_at = None

    def replicas(self, at: float, page: Iterable[Mapping[str, Any]]) -> None:
        """`/api/replicas`; what does not tell any more has holes."""
        told = {str(one["name"]): one for one in page}
        self._known |= {name: str(one["address"]) for name, one in told.items()}
        for name, address in self._known.items():
            one = told.get(name, {})
            state = one.get("state")
            self._add(at, name, "up", "1", None if state is None else float(state == "up"))
            self._add(at, name, "waiting in Triton", "calls", one.get("pending"))
            self._add(at, name, "CPU of its machine", "share", one.get("cpu_utilization"))
            self._memory(at, name, address)
            self._gpus(at, one.get("gpus", {}))

    def gateway(self, at: float, reading: GatewayScrape, used: Mapping[str, float]) -> None:
        """One scrape of the gateway, and the CPU seconds of its processes since the last one."""
        for name, calls in reading.busy.items():
            self._add(at, name, "calls in flight", "calls", calls)
        every = SeriesName("gateway", "all workers", "calls in flight", "calls")
        self._timeline.add(every, at, reading.in_flight)
        if self._read_at is not None and at > self._read_at:
            for source, seconds in used.items():
                share = seconds / (at - self._read_at)
                self._timeline.add(
                    SeriesName("gateway", source, "CPU of a core", "share"), at, share
                )
        self._read_at = at
        for source, size in (reading.proportional or reading.resident).items():
            self._timeline.add(SeriesName("gateway", source, "memory", "B"), at, size)

    def triton(self, at: float, text: str | None) -> None:
        """A scrape of a bare Triton; `ValueError` where it is none, None where nobody answered."""
        told = None if text is None else metrics.read(text)
        if told is not None:
            self._add(at, self._bare, "waiting in Triton", "calls", told.pending)
            self._add(at, self._bare, "CPU of its machine", "share", told.cpu_utilization)
            for uuid, one in told.gpus.items():
                self._gpus(at, {uuid: {key: getattr(one, key) for key, _, _ in _GPU}})
        self._memory(at, self._bare, self._bare)

    def _gpus(self, at: float, told: Mapping[str, Mapping[str, Any]]) -> None:
        for uuid, one in told.items():
            for key, name, unit in _GPU:
                self._timeline.add(SeriesName("gpu", uuid, name, unit), at, one.get(key))

    def _memory(self, at: float, name: str, address: str) -> None:
        """Only of Tritons on this machine; nobody else tells it."""
        host, _, rest = address.rpartition("]:") if "]" in address else address.partition(":")
        if not is_here(host) or not rest:
            return
        pid = self._processes.get(name)
        size = None if pid is None else resident(pid)
        if size is None:
            pid = self._processes[name] = triton_on(int(rest.split(":")[0]))
            size = None if pid is None else resident(pid)
        self._add(at, name, "memory", "B", size)

    def _add(self, at: float, replica: str, name: str, unit: str, value: Any) -> None:
        number = None if value is None else float(value)
        self._timeline.add(SeriesName("replica", replica, name, unit), at, number)
