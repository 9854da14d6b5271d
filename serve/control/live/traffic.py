"""What went through the gateway between two readings of its metrics: rates and quantiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serve.control.live.gateway_metrics import GatewayReading, Where
from serve.control.live.rises import add_buckets, bucket_rises, quantile, rises

_SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
Codes = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrafficCounts:
    """Calls and errors per second, the errors also by code; messages of streams per second."""

    calls: float
    errors: float
    codes: Codes
    messages: float = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one model, or of all: `quantiles` are seconds by name, None without calls.

    `retries` and `mirrored` calls are per second.
    """

    counted: TrafficCounts
    quantiles: Mapping[str, float | None]
    retries: float
    mirrored: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """All of one period. `cpu` is in cores; the empty name is of calls for no known model."""

    whole: Rates
    models: Mapping[str, Rates]
    places: Mapping[Where, TrafficCounts]
    cpu: float


def compare(before: GatewayReading, now: GatewayReading, seconds: float) -> Traffic:
    """What happened in the seconds between two readings."""
    places = _places(before, now, seconds)
    buckets = {
        model: bucket_rises(before.buckets.get(model, {}), found)
        for model, found in now.buckets.items()
    }
    retries, mirrored = rises(before.retries, now.retries), dict[str, float]()
    for (model, _, _), count in rises(before.mirrored, now.mirrored).items():
        mirrored[model] = mirrored.get(model, 0.0) + count
    names = sorted({*(model for model, _, _ in places), *buckets, *retries, *mirrored})
    models = {
        model: Rates(
            _sum([one for where, one in places.items() if where[0] == model]),
            _quantiles(buckets.get(model, {})),
            retries.get(model, 0.0) / seconds,
            mirrored.get(model, 0.0) / seconds,
        )
        for model in names
    }
    whole = Rates(
        _sum(list(places.values())),
        _quantiles(add_buckets(list(buckets.values()))),
        sum(retries.values()) / seconds,
        sum(mirrored.values()) / seconds,
    )
    # A process that was not there before may be an old one, of a gateway that was silent.
    known = {source: spent for source, spent in now.cpu.items() if source in before.cpu}
    return Traffic(whole, models, places, sum(rises(before.cpu, known).values()) / seconds)


def _places(
    before: GatewayReading, now: GatewayReading, seconds: float
) -> Mapping[Where, TrafficCounts]:
    calls, messages = rises(before.calls, now.calls), rises(before.messages, now.messages)
    codes: dict[Where, dict[str, float]] = {}
    for (where, code), count in rises(before.errors, now.errors).items():
        if count:
            codes.setdefault(where, {})[code] = count / seconds
    return {
        where: TrafficCounts(
            calls.get(where, 0.0) / seconds,
            sum(codes.get(where, {}).values()),
            codes.get(where, {}),
            messages.get(where, 0.0) / seconds,
        )
        for where in sorted({*calls, *messages, *codes})
    }


def _sum(parts: Sequence[TrafficCounts]) -> TrafficCounts:
    codes: dict[str, float] = {}
    for part in parts:
        for code, rate in part.codes.items():
            codes[code] = codes.get(code, 0.0) + rate
    return TrafficCounts(
        sum(part.calls for part in parts),
        sum(part.errors for part in parts),
        dict(sorted(codes.items())),
        sum(part.messages for part in parts),
    )


def _quantiles(buckets: Mapping[float, float]) -> Mapping[str, float | None]:
    return {name: quantile(share, buckets) for name, share in _SHARES}
