"""Signals: what is seen of a pool and its models at one moment, and what a hint answers to it.

A reading that nobody gives is None, never 0: an idle GPU and an unknown one are not the same.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ModelSignal:
    """One model on the replicas of one pool.

    `recent`, `lately`: arrivals at the gateway in calls per second over the last 5 and 15 seconds,
    those included that were refused or wait. `waiting`: calls that wait now, in the gateway and in
    Triton. `capacity`: calls per second that one replica bears under the objective. `limit`: the
    objective's, in seconds. `missed`: the share of the last minute's calls beyond it, of which
    `allowed` is what the objective allows. `pressure`: their time in Triton's queue ÷ their time in
    execution. `occupancy`: rows of an execution ÷ max_batch_size. `holding`: replicas that can be
    called for it. `age`: seconds, of the oldest input.
    """

    name: str
    recent: float
    lately: float
    waiting: float
    capacity: float | None
    holding: int
    limit: float | None = None
    missed: float | None = None
    pressure: float | None = None
    occupancy: float | None = None
    age: float = 0.0
    allowed: float = 0.01


@dataclass(frozen=True, slots=True)
class PoolSignal:
    """One pool. `at` is monotonic, in seconds. `ready` and `starting` count replicas.

    `utilization`: of its GPUs, 0 to 1, None where nobody tells (no GPU, MIG). `cold_start`: the
    90th percentile of the seconds from the wish for a replica until it was ready. `idle`: seconds
    since the last call, infinite where nothing is known of any. `age`: seconds since the gateway
    was read. `faults`: sentences on readings that cannot be right, such as counters that fell.
    """

    name: str
    at: float
    ready: int
    starting: int
    models: tuple[ModelSignal, ...]
    utilization: float | None = None
    cold_start: float = 60.0
    idle: float = 0.0
    age: float = 0.0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What people allow. `budget`: replicas that there are GPUs for, None without such a limit.

    `to_zero`: whether an idle pool may have none; then `least` holds only while it is not idle.
    """

    least: int = 1
    most: int = 8
    budget: int | None = None
    to_zero: bool = False

    @property
    def highest(self) -> int:
        """The most, and no more than there are GPUs for."""
        return self.most if self.budget is None else min(self.most, self.budget)


class Code(StrEnum):
    """Why a hint is what it is."""

    DEMAND = "demand"  # what comes needs so many
    FALLING = "falling"  # less is needed, and was for long enough
    WAITING = "waiting-to-fall"  # less is needed, but not for long enough, or some still start
    KEPT = "kept"  # less is needed, but the last hour says that more may be again
    STEADY = "steady"  # what is there is right
    BACKLOG = "backlog"  # calls wait that have to be worked off
    MISSED = "objective-missed"
    STEP = "largest-step"  # more is needed than one step may bring
    NOT_GPU_BOUND = "not-gpu-bound"  # calls wait, and the GPUs have time
    BATCHING = "batching-off"  # the GPUs are full of small batches
    UNKNOWN = "capacity-unknown"
    NOT_HELD = "not-held"  # replicas do not hold the model yet
    STALE = "stale"
    INVALID = "invalid"
    RESTARTED = "restarted"
    LEAST, MOST, BUDGET = "least", "most", "budget"
    IDLE = "idle"  # nobody calls: none
    WAKING = "waking"  # somebody calls a pool without replicas


# Everything is to stay as it is: the number of such a hint could mean less than there is.
HOLDS = frozenset({Code.STALE, Code.INVALID, Code.RESTARTED})


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, for programs and for people."""

    code: Code
    text: str


@dataclass(frozen=True, slots=True)
class ReplicaHint:
    """How many replicas a pool should have.

    `demand`: in replicas that are busy all the time, a fraction; nan where that is not known;
    `needs` are its parts, by model. `confidence`: `high`, or `low` where something is not known and
    the number is only held. `lasts`: seconds for which it may be followed.
    """

    pool: str
    desired: int
    ready: int
    starting: int
    demand: float
    reasons: tuple[Reason, ...]
    confidence: str = "high"
    lasts: float = 30.0
    needs: tuple[tuple[str, float], ...] = ()

    @property
    def codes(self) -> frozenset[Code]:
        """Of all reasons."""
        return frozenset(reason.code for reason in self.reasons)


def invalid(signal: PoolSignal) -> Iterator[str]:
    """What cannot be: the faults, negative numbers, nan, infinity, shares beyond 1."""
    yield from signal.faults
    yield from _wrong("", signal, ("ready", "starting", "cold_start", "age"), math.inf)
    if not signal.idle >= 0:
        yield f"idle is {signal.idle:g}"
    yield from _wrong("", signal, ("utilization",), 1.0)
    for model in signal.models:
        place = f"{model.name}: "
        counts = ("recent", "lately", "waiting", "capacity", "limit", "pressure", "holding", "age")
        yield from _wrong(place, model, counts, math.inf)
        yield from _wrong(place, model, ("missed", "allowed", "occupancy"), 1.0)


def _wrong(place: str, signal: object, names: tuple[str, ...], most: float) -> Iterator[str]:
    for name in names:
        value = getattr(signal, name)
        if value is not None and not (math.isfinite(value) and 0 <= value <= most):
            yield f"{place}{name} is {value:g}"
