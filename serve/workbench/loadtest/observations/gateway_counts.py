"""What the gateway's metrics say: one reading of the text, and the rises from first to last.

The text is read every second while something else is measured, so it is only looked through for the
series that matter here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from serve.wire.prometheus import MetricSample, samples
from serve.workbench.loadtest.observed import GatewayTimes

_OF_MODEL = (
    "servegate_call_seconds_sum",
    "servegate_call_seconds_count",
    "servegate_errors_total",
    "servegate_retries_total",
    "servegate_stream_messages_total",
)
_OF_ALL = (
    "servegate_calls_in_flight",
    "servegate_replica_calls_in_flight",
    "servegate_replica_usable",
    "servegate_process_cpu_seconds_total",
    "servegate_process_resident_bytes",
    "servegate_process_proportional_bytes",
)
Sums = defaultdict[str, float]
_ALIKE = 0.02  # how far two counts of the same calls may be apart, as a share


@dataclass(frozen=True, slots=True)
class GatewayScrape:
    """One scrape. Counters are of one model, and since the gateway's start.

    `busy`: calls in flight by replica, over all workers. `avoided`: replicas that some worker
    avoids. `cpu`, `resident` and `proportional` are seconds and bytes by process.
    """

    counts: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    in_flight: float | None = None
    busy: Mapping[str, float] = field(default_factory=dict)
    avoided: frozenset[str] = frozenset()
    cpu: Mapping[str, float] = field(default_factory=dict)
    resident: Mapping[str, float] = field(default_factory=dict)
    proportional: Mapping[str, float] = field(default_factory=dict)


def is_gateways(text: str) -> bool:
    """Whether a metrics text is the gateway's, not Triton's."""
    return "servegate_" in text


def read(text: str, model: str) -> GatewayScrape:
    """What one text says; `ValueError` where it is none."""
    counts: Sums = defaultdict(float)
    errors: Sums = defaultdict(float)
    gauges: Mapping[str, Sums] = {name: defaultdict(float) for name in _OF_ALL}
    avoided: set[str] = set()
    for name, labels, value in _samples(text, model):
        if name == "servegate_errors_total":
            errors[labels["error"]] += value
        elif name in _OF_MODEL:
            counts[name] += value
        else:
            gauges[name][labels.get("replica") or labels.get("source", "")] += value
            if name == "servegate_replica_usable" and not value:
                avoided.add(labels["replica"])
    in_flight = gauges["servegate_calls_in_flight"]
    return GatewayScrape(
        counts,
        errors,
        sum(in_flight.values()) if in_flight else None,
        gauges["servegate_replica_calls_in_flight"],
        frozenset(avoided),
        gauges["servegate_process_cpu_seconds_total"],
        gauges["servegate_process_resident_bytes"],
        gauges["servegate_process_proportional_bytes"],
    )


class GatewayCounts:
    """The rises of the gateway's counters over a run."""

    def __init__(self) -> None:
        self._first: GatewayScrape | None = None
        self._last = GatewayScrape()
        self._cpu = 0.0
        self._resident = 0.0

    def __repr__(self) -> str:
        return f"<GatewayCounts cpu={self._cpu:.1f}s>"

    def add(self, reading: GatewayScrape) -> Mapping[str, float]:
        """One more; CPU seconds by process since the one before."""
        used = {} if self._first is None else dict(_used(self._last.cpu, reading.cpu))
        self._first = self._first or reading
        self._last = reading
        self._cpu += sum(used.values())
        self._resident = max(self._resident, sum(reading.resident.values()))
        return used

    def times(self, requests: int, mean_request: float | None) -> GatewayTimes | None:
        """All of the run, None without a reading; what Triton said goes into `added`.

        Where streams were called, or Triton answered other calls than the gateway's (refusals,
        calls around the gateway), the two means are not of the same calls: `added` is None.
        """
        if self._first is None:
            return None
        rises = _rises(self._first.counts, self._last.counts)
        calls = rises.get("servegate_call_seconds_count", 0.0)
        whole = rises.get("servegate_call_seconds_sum", 0.0) / calls if calls else 0.0
        added = None
        is_alike = abs(calls - requests) <= _ALIKE * max(calls, requests)
        is_streamed = bool(rises.get("servegate_stream_messages_total"))
        if mean_request is not None and is_alike and not is_streamed:
            added = whole - mean_request if whole >= mean_request else None
        errors = _rises(self._first.errors, self._last.errors)
        return GatewayTimes(
            calls=round(calls),
            whole=whole,
            added=added,
            errors={code: round(count) for code, count in sorted(errors.items()) if count},
            retries=round(rises.get("servegate_retries_total", 0.0)),
            cpu=self._cpu,
            resident=round(self._resident),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence where counters fell."""
        first = self._first
        if first is None or all(
            self._last.counts.get(name, 0.0) >= count for name, count in first.counts.items()
        ):
            return ()
        return ("the gateway's counters decreased during the run, because it was restarted",)


def _samples(text: str, model: str) -> Iterator[MetricSample]:
    yield from samples(text, _OF_MODEL, having={"model": model})
    yield from samples(text, _OF_ALL)


def _rises(first: Mapping[str, float], last: Mapping[str, float]) -> Mapping[str, float]:
    return {name: max(0.0, count - first.get(name, 0.0)) for name, count in last.items()}


def _used(before: Mapping[str, float], now: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """A process that is new, or counts less than before, has used all of it since its start."""
    for source, seconds in now.items():
        earlier = before.get(source, 0.0)
        yield source, seconds - earlier if seconds >= earlier else seconds
