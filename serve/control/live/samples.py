"""A sample: all that is known of one second, as one tree of names with numbers as its leaves.

    {"seconds": 1795334400.1, "period": 1.0, "gateway": {"calls": 812.0, "p99": 0.0071, …},
     "models": {"digits": {"calls": 812.0, …, "versions": {"3": {"http": {"calls": 700.0, …}}}}},
     "replicas": {"local-0": {"state": "up", "queue": 0.0004, …, "gpus": {…}, "models": {…}}},
     "pools": {"default": {"desired": 3, "ready": 2, "demand": 2.3, …, "models": {…}}},
     "hints": [{"kind": "scaling", "about": "default", …}]}

A leaf is null where nobody told the number; it is never 0 for that. The history is the same tree
with a column at each leaf, so whoever has the history can append any later sample to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from serve.control.live.gateway_metrics import GatewayReading
from serve.control.live.traffic import Rates, Traffic, TrafficCounts
from serve.control.live.work import Work
from serve.triton.metrics import ReplicaScrape

Tree = dict[str, Any]
_NO_COUNT = TrafficCounts(0.0, 0.0, {})
_OTHERS = ("retries", "mirrored")


@dataclass(frozen=True, slots=True)
class GatewaySeen:
    """The gateway's reading, None when it did not tell; `traffic` since the one before it.

    `age` is how old the last reading is that it did tell, in seconds; None without any.
    """

    reading: GatewayReading | None = None
    traffic: Traffic | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """One replica: as the fleet knows it, and as its own metrics tell, as in `GatewaySeen`.

    `missing` versions are still to be loaded there; None where that is not known.
    """

    state: str
    pool: str
    missing: int | None = None
    reading: ReplicaScrape | None = None
    work: Work | None = None
    models: Mapping[str, Work] | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class Advised:
    """The hints that hold: numbers of pools, as a part of the tree, and what is said of them."""

    pools: Tree = field(default_factory=dict)
    hints: Sequence[Tree] = ()


@dataclass(frozen=True, slots=True)
class LiveSample:
    """One second; `seconds` is of the epoch, `period` how long the rates are the means of."""

    seconds: float
    period: float | None
    gateway: GatewaySeen
    replicas: Mapping[str, ReplicaSeen]
    advised: Advised = field(default_factory=Advised)

    def to_json(self) -> Tree:
        """The tree, with six digits of each number."""
        told = [seen.reading.pending for seen in self.replicas.values() if seen.reading]
        tree: Tree = {
            "gateway": _gateway(self.gateway, sum(told) if told else None),
            "models": _models(self.gateway.traffic),
            "replicas": {
                name: _replica(name, seen, self.gateway.reading)
                for name, seen in self.replicas.items()
            },
            "pools": self.advised.pools,
        }
        about = {"seconds": round(self.seconds, 3), "period": _short(self.period)}
        return {**about, **_short(tree), "hints": list(self.advised.hints)}


def columns(trees: Sequence[Tree]) -> Tree:
    """The history: the same names with one column each; of the hints only the present ones."""
    shape = LiveSample(0.0, None, GatewaySeen(), {}).to_json()  # what is there without any sample
    made = _columns(trees, shape)
    return {**made, "hints": trees[-1]["hints"] if trees else []}


def _columns(trees: Sequence[Tree], shape: Tree) -> Tree:
    names = dict.fromkeys((*shape, *(name for tree in trees for name in tree)))
    made: Tree = {}
    for name in names:
        column = [tree.get(name) for tree in trees]
        if any(isinstance(value, dict) for value in (shape.get(name), *column)):
            made[name] = _columns([value or {} for value in column], shape.get(name) or {})
        else:
            made[name] = column
    return made


def _gateway(seen: GatewaySeen, waiting: int | None) -> Tree:
    reading, traffic = seen.reading, seen.traffic
    return {
        **_rates(traffic.whole if traffic else None),
        "in_flight": reading.in_flight if reading else None,
        "waiting": waiting,
        "cpu": traffic.cpu if traffic else None,
        "memory": sum(reading.memory.values()) if reading and reading.memory else None,
        "age": seen.age,
    }


def _models(traffic: Traffic | None) -> Tree:
    if traffic is None:
        return {}
    models: Tree = {name: {**_rates(one), "versions": {}} for name, one in traffic.models.items()}
    for (model, version, protocol), counted in traffic.places.items():
        models[model]["versions"].setdefault(version, {})[protocol] = asdict(counted)
    return models


def _rates(rates: Rates | None) -> Tree:
    if rates is None:
        unknown: Tree = dict.fromkeys((*asdict(_NO_COUNT), "p50", "p90", "p99", *_OTHERS))
        return {**unknown, "codes": {}}
    others = {name: getattr(rates, name) for name in _OTHERS}
    return {**asdict(rates.counted), **rates.quantiles, **others}


def _replica(name: str, seen: ReplicaSeen, gateway: GatewayReading | None) -> Tree:
    told, work = seen.reading, seen.work
    return {
        "state": seen.state,
        "pool": seen.pool,
        "missing": seen.missing,
        "avoided": gateway.avoided.get(name) if gateway else None,
        "in_flight": gateway.busy.get(name) if gateway else None,
        **(asdict(work) if work else dict.fromkeys(("requests", "queue", "compute", "batch"))),
        "waiting": told.pending if told else None,
        "cpu": told.cpu_utilization if told else None,
        "gpus": {uuid: asdict(gpu) for uuid, gpu in told.gpus.items()} if told else {},
        "models": {model: asdict(one) for model, one in (seen.models or {}).items()},
        "age": seen.age,
    }


def _short(value: Any) -> Any:
    """Six digits are plenty, and JSON knows no number that is not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return value
