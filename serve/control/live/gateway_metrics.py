"""What one text of the gateway's metrics port says, as far as people watch it.

A call is one that predicts: looking at metadata is none. The gateway counts the calls that Triton
answered, well or not, and all errors, Triton's and its own. Its own are those whose code no answer
of Triton has; they are added, so that `calls` are all that came.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from serve.core.calls import Verb
from serve.wire.prometheus import MetricSample, samples

Where = tuple[str, str, str]  # model, version, protocol; the first two empty where unknown
Buckets = Mapping[float, float]  # calls that took up to so many seconds, by bound
_PREDICTS = frozenset({Verb.INFER, Verb.STREAM, Verb.GENERATE, Verb.GENERATE_STREAM})
_CALLS, _ERRORS = "servegate_calls_total", "servegate_errors_total"
_MESSAGES, _RETRIES = "servegate_stream_messages_total", "servegate_retries_total"
_BUCKETS = "servegate_call_seconds_bucket"
_IN_FLIGHT, _BUSY = "servegate_calls_in_flight", "servegate_replica_calls_in_flight"
_USABLE = "servegate_replica_usable"
_MIRRORED = "servegate_mirrored_calls_total"
_CPU = "servegate_process_cpu_seconds_total"
_PROPORTIONAL = "servegate_process_proportional_bytes"
_RESIDENT = "servegate_process_resident_bytes"
_NAMES = (
    *(_CALLS, _ERRORS, _MESSAGES, _RETRIES, _BUCKETS),
    *(_MIRRORED, _IN_FLIGHT, _BUSY, _USABLE, _CPU, _PROPORTIONAL, _RESIDENT),
)
_WORKER = "worker-"  # how the sources are named that serve calls


@dataclass(frozen=True, slots=True)
class GatewayReading:
    """Counters since the gateway's start, and what is so now.

    `errors` are by their code, `buckets` and `retries` by model, `busy` calls in flight by replica,
    `avoided` how many workers avoid a replica. `cpu` (seconds) and `memory` (bytes) are by worker.
    """

    calls: Mapping[Where, float]
    errors: Mapping[tuple[Where, str], float]
    messages: Mapping[Where, float]
    buckets: Mapping[str, Buckets]
    retries: Mapping[str, float]
    in_flight: float | None
    busy: Mapping[str, float]
    avoided: Mapping[str, int]
    cpu: Mapping[str, float]
    memory: Mapping[str, float]
    mirrored: Mapping[Where, float] = field(default_factory=dict)


def read(text: str) -> GatewayReading:
    """Read a text; `ValueError` where it is none."""
    found: dict[str, list[MetricSample]] = {name: [] for name in _NAMES}
    for sample in samples(text, _NAMES):
        found[sample.name].append(sample)
    buckets: dict[str, dict[float, float]] = {}
    for _, labels, value in found[_BUCKETS]:
        of_model = buckets.setdefault(labels["model"], defaultdict(float))
        of_model[float(labels["le"])] += value
    avoided: dict[str, int] = {}
    for _, labels, value in found[_USABLE]:
        avoided[labels["replica"]] = avoided.get(labels["replica"], 0) + (not value)
    in_flight = found[_IN_FLIGHT]
    resident = _by_label(_of_workers(found[_RESIDENT]), "source")
    return GatewayReading(
        calls=_calls(found[_CALLS], found[_ERRORS]),
        errors=_errors(found[_ERRORS]),
        messages=_by_place(found[_MESSAGES]),
        mirrored=_by_place(found[_MIRRORED]),
        buckets=buckets,
        retries=_by_label(found[_RETRIES], "model"),
        in_flight=sum(sample.value for sample in in_flight) if in_flight else None,
        busy=_by_label(found[_BUSY], "replica"),
        avoided=avoided,
        cpu=_by_label(_of_workers(found[_CPU]), "source"),
        memory={**resident, **_by_label(_of_workers(found[_PROPORTIONAL]), "source")},
    )


def _calls(answered: list[MetricSample], failed: list[MetricSample]) -> dict[Where, float]:
    tritons = {(_where(labels), labels["code"]) for _, labels, _ in answered}
    counts = _by_place(sample for sample in answered if sample.labels["verb"] in _PREDICTS)
    for _, labels, value in failed:
        where = _where(labels)
        if (where, labels["error"]) not in tritons:
            counts[where] = counts.get(where, 0.0) + value
    return counts


def _errors(failed: list[MetricSample]) -> dict[tuple[Where, str], float]:
    counts: dict[tuple[Where, str], float] = defaultdict(float)
    for _, labels, value in failed:
        counts[_where(labels), labels["error"]] += value
    return counts


def _by_place(found: Iterable[MetricSample]) -> dict[Where, float]:
    counts: dict[Where, float] = defaultdict(float)
    for _, labels, value in found:
        counts[_where(labels)] += value
    return counts


def _by_label(found: Iterable[MetricSample], label: str) -> dict[str, float]:
    counts: dict[str, float] = defaultdict(float)
    for _, labels, value in found:
        counts[labels[label]] += value
    return counts


def _where(labels: Mapping[str, str]) -> Where:
    return labels["model"], labels["version"], labels["protocol"]


def _of_workers(found: Iterable[MetricSample]) -> Iterable[MetricSample]:
    return (sample for sample in found if sample.labels["source"].startswith(_WORKER))
