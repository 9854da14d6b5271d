"""The policy: demand ÷ measured capacity, with guards. Pure: a state and a signal give the next.

Demand of a model, in calls per second:

    D = rate + max(0, waiting − ½·limit·capacity·holding) ÷ 30 s          the rate: `Rate`

In replicas that are busy all the time: Σ D ÷ capacity, over the pool's models. `enough_for` gives
how many are wanted for them. Fewer than there are: only when no more was needed for `HELD`, when
the last hour does not say to keep them (`DemandMemory`), when none is starting, and by no more than
a half a minute.

A miss lowers what is believed of a capacity only where there were enough replicas by the policy's
own reckoning: those that come a cold start too late are no fault of the capacity.

Where the numbers come from: `docs/autoscaling.md`.

The rate at which calls come: followed at once where it has changed, and smooth where it has not.

What comes in five seconds scatters, with bursty callers far more than by pure chance. So it is told
from the past how much it scatters:

    σ²    half of the squared difference of two means of five seconds that follow each other; by
          half in `SCATTER`. A difference counts for 3 σ at most: a jump is none of the scatter.
    rate  the mean, by half in `SMOOTH`; but within lately ± 2 σ ÷ √3, and at least recent − 2 σ

where `recent` is the mean over 5 s and `lately` over 15 s, whose σ is smaller by √3.

Bounding: a hint says no more than people allow, and that it does.

The memory of a pool: what it needed in the last hour, and what of that is worth keeping ready.

A replica that is kept idle costs its time; one that is missing when calls come back costs as much
capacity for as long as a start takes. So a level of replicas is kept when, over the last hour,

    Σ min(start, how long it was needed), each time that it was     what keeping it would have saved
    ≥ `PRICE` · the time for which it was not needed                what keeping it would have cost

So what comes back once in start ÷ `PRICE`, twenty starts, stays. What is kept is busy all the time
when it is needed again, until more have started.

How many replicas bear a demand: what is busy all the time, and some to spare.

Chance is larger in small pools: of n that are busy on average, √n more or fewer are at times. So
what is spare grows with the root (Halfin and Whitt, 1981); in large pools it is a share, since a
capacity that was learned is not exact, and calls are not shared out evenly.

    replicas ≥ busy + `SPARE` · √busy     and     replicas ≥ busy ÷ `UP`
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import MappingProxyType

from serve.capacity.scaling.signals import (
    Bounds,
    Code,
    ModelSignal,
    PoolSignal,
    Reason,
    ReplicaHint,
    invalid,
)

# --- how many replicas bear a demand --------------------------------------------------------------


SPARE = 0.45
UP = 0.9  # share of the time for which replicas may be busy


def whole(replicas: float) -> int:
    """Rounded up, but for what is only the arithmetic's."""
    return math.ceil(replicas - 1e-9)


def enough_for(busy: float) -> int:
    """Replicas for a demand in replicas that would be busy all the time."""
    return whole(max(busy + SPARE * math.sqrt(busy), busy / UP))


def borne(replicas: int) -> float:
    """The highest demand for which so many are enough."""
    root = (math.sqrt(SPARE**2 + 4 * replicas) - SPARE) / 2
    return min(root**2, replicas * UP)


# --- the memory of a pool -------------------------------------------------------------------------


SLOT, REMEMBERED = 15.0, 3600.0  # seconds
PRICE = 0.05  # of capacity that is missing, for as much that is idle
_SLOTS = int(REMEMBERED // SLOT)


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """The most replicas that were busy all the time, in each slot; the last slot has `number`."""

    number: int = 0
    needs: tuple[float, ...] = ()

    def noted(self, at: float, need: float) -> "DemandMemory":
        """One more need, at a time in seconds; slots in which nobody looked were like it."""
        number = int(at // SLOT)
        passed = number - self.number
        if not self.needs or passed >= _SLOTS:
            return DemandMemory(number, (need,))
        if passed <= 0:
            return replace(self, needs=(*self.needs[:-1], max(self.needs[-1], need)))
        return DemandMemory(number, (*self.needs, *(need,) * passed)[-_SLOTS:])

    @property
    def seconds(self) -> float:
        """How long it goes back."""
        return SLOT * len(self.needs)

    def most(self, seconds: float) -> float:
        """The most of the last seconds, the present slot included; 0 without any."""
        return max(self.needs[-1 - int(seconds // SLOT) :], default=0.0)

    def kept(self, least: int, start: float) -> int:
        """Replicas to keep ready, `least` or more; `start`: seconds that one takes."""
        wholes = [whole(busy) for busy in self.needs]
        for level in sorted({need for need in wholes if need > least}, reverse=True):
            saved = sum(min(start, seconds) for seconds in _runs(wholes, level))
            unused = SLOT * sum(need < level for need in wholes)
            if saved >= PRICE * unused:
                return level
        return least


def _runs(needs: list[int], level: int) -> Iterator[float]:
    """For how many seconds it was needed, each time."""
    for is_needed, run in groupby(needs, lambda need: need >= level):
        if is_needed:
            yield SLOT * sum(1 for _ in run)


# --- bounding -------------------------------------------------------------------------------------


def hint_of(
    signal: PoolSignal,
    bounds: Bounds,
    desired: int,
    demand: float,
    reasons: tuple[Reason, ...],
    confidence: str = "high",
) -> ReplicaHint:
    """Within what people allow."""
    codes = {one.code for one in reasons}
    said = list(reasons)
    has_none = Code.IDLE in codes or not signal.ready + signal.starting
    least = 0 if bounds.to_zero and has_none else bounds.least
    if desired < least:
        desired = least
        said.append(Reason(Code.LEAST, f"the minimum is {least}"))
    most = bounds.highest
    if desired > most:
        code = Code.MOST if most == bounds.most else Code.BUDGET
        said.append(Reason(code, f"{desired} are needed, but the limit is {most}"))
        desired = most
    return ReplicaHint(
        signal.name,
        desired,
        signal.ready,
        signal.starting,
        demand,
        tuple(said),
        confidence,
    )


# --- the rate at which calls come -----------------------------------------------------------------


RECENT, LATELY = 5.0, 15.0  # seconds
SMOOTH, SCATTER = 60.0, 120.0  # seconds
SURE = 2.0  # σ
_OUTLIER = 3.0  # σ


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls per second. `variance`: σ² of `recent`, which was `last`."""

    now: float
    variance: float
    last: float


def follow(known: Rate | None, recent: float, lately: float, passed: float) -> Rate:
    """The rate after so many more seconds; None where nothing is known yet."""
    if known is None:
        return Rate(lately, lately / RECENT, recent)
    chance = max(known.variance, lately / RECENT)  # a Poisson process scatters so at least
    rest = min((recent - known.last) ** 2 / 2, _OUTLIER**2 * chance)
    variance = known.variance + _share(passed, SCATTER) * (rest - known.variance)
    sigma = math.sqrt(max(variance, lately / RECENT))
    near = SURE * sigma / math.sqrt(LATELY / RECENT)
    mean = known.now + _share(passed, SMOOTH) * (recent - known.now)
    now = max(min(mean, lately + near), lately - near, recent - SURE * sigma, 0.0)
    return Rate(now, variance, recent)


def _share(passed: float, half: float) -> float:
    """How much of the new replaces the old."""
    return 1.0 - math.exp2(-passed / half)


# --- the policy -----------------------------------------------------------------------------------


TICK = 5.0  # seconds from one decision to the next
HELD = 180.0  # seconds
DRAINING = 30.0  # seconds in which a backlog is to be worked off
SHARE_DOWN, EVERY = 0.5, 60.0  # at most so much less, in so many seconds
JUDGED = 60.0  # seconds of which a miss tells
DERATED = 0.9  # of the capacity, after a miss
RECOVERING = 900.0  # seconds in which half of that is forgotten
STALE = 15.0  # seconds
RESTARTED = 60.0  # seconds after a start in which nothing is changed
IDLE, COLD_STARTS = 300.0, 10.0  # seconds, and cold starts, without a call until there are none
NOT_BOUND, FULL, EMPTY = 0.3, 0.95, 0.3  # utilisation below and above, occupancy below
_LIMIT = 1.0  # seconds, where a model has no objective
_NONE: Mapping[str, float] = MappingProxyType({})
_UNKNOWN: Mapping[str, Rate] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What the policy remembers of a pool. Times as in `PoolSignal.at`.

    By model, `rates`, `derated`: what its capacity is multiplied by, and `missed_at`: when that was
    last lowered. `fell`: replicas at the beginning of the present minute of falling, and when that
    was.
    """

    began: float
    at: float
    rates: Mapping[str, Rate] = field(default_factory=lambda: _UNKNOWN)
    derated: Mapping[str, float] = field(default_factory=lambda: _NONE)
    missed_at: Mapping[str, float] = field(default_factory=lambda: _NONE)
    memory: DemandMemory = field(default_factory=DemandMemory)
    fell: tuple[int, float] = (0, -math.inf)


@dataclass(frozen=True, slots=True)
class _Need:
    """What a pool needs, in replicas that are busy all the time, and why it is so much."""

    busy: float
    backlog: float
    reasons: tuple[Reason, ...]
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def is_missed(self) -> bool:
        """Whether too many calls of a model are late."""
        return any(one.code is Code.MISSED for one in self.reasons)


def begin(at: float) -> PolicyState:
    """Nothing is known yet; `at` as in `PoolSignal`."""
    return PolicyState(at, at)


def decide(
    state: PolicyState, signal: PoolSignal, bounds: Bounds
) -> tuple[PolicyState, ReplicaHint]:
    """The hint for what is seen now, and what is to be remembered until the next."""
    wrong = _wrong(signal)
    if not wrong and _is_called_in_vain(signal, bounds):
        reason = Reason(Code.WAKING, "a call needs the pool, and it has no replicas")
        return state, hint_of(signal, bounds, 1, 0.0, (reason,))
    held = wrong or _held(state, signal)
    if held:
        return state, hint_of(signal, bounds, signal.ready + signal.starting, math.nan, held, "low")
    state = _remember(state, signal)
    if _is_idle(signal, bounds):
        reason = Reason(Code.IDLE, f"no calls for {signal.idle:.0f} s")
        return state, hint_of(signal, bounds, 0, 0.0, (reason,))
    need = _needed(state, signal)
    if need is None:
        return _unknown(state, signal, bounds)
    state = replace(state, memory=state.memory.noted(signal.at, need.busy))
    if need.is_missed and _was_enough(state, signal):
        state = _derated(state, signal)
    state, desired, reasons = _steps(state, signal, need)
    hint = hint_of(signal, bounds, desired, need.busy, (*reasons, *need.reasons))
    return state, replace(hint, needs=need.parts)


def _wrong(signal: PoolSignal) -> tuple[Reason, ...]:
    """What cannot be."""
    return tuple(Reason(Code.INVALID, text) for text in invalid(signal))


def _is_called(signal: PoolSignal) -> bool:
    return any(one.waiting or one.recent for one in signal.models)


def _is_called_in_vain(signal: PoolSignal, bounds: Bounds) -> bool:
    """The first call wakes a pool, whatever else is not known yet; nobody has to call twice."""
    return not signal.ready + signal.starting and not _is_idle(signal, bounds)


def _is_idle(signal: PoolSignal, bounds: Bounds) -> bool:
    """Whether there should be none at all."""
    patience = max(IDLE, COLD_STARTS * signal.cold_start)
    return bounds.to_zero and not _is_called(signal) and signal.idle >= patience


def _held(state: PolicyState, signal: PoolSignal) -> tuple[Reason, ...]:
    """Why nothing may be changed now; empty when that is not so."""
    stale = [one for one in signal.models if one.age > STALE]
    if stale:
        oldest = max(stale, key=lambda one: one.age)
        return (Reason(Code.STALE, f"the readings of {oldest.name} are {oldest.age:.0f} s old"),)
    if signal.age > STALE:
        return (Reason(Code.STALE, f"the readings of the gateway are {signal.age:.0f} s old"),)
    left = RESTARTED - (signal.at - state.began)
    if left > 0:
        return (
            Reason(
                Code.RESTARTED,
                f"the control plane has just started; nothing changes for {left:.0f} s",
            ),
        )
    return ()


def _remember(state: PolicyState, signal: PoolSignal) -> PolicyState:
    """Rates are followed, and lowered capacities recover; models that are gone are forgotten."""
    passed = max(0.0, signal.at - state.at)
    recover = 2 ** (-passed / RECOVERING)
    rates, derated = {}, {}
    for model in signal.models:
        name = model.name
        rates[name] = follow(state.rates.get(name), model.recent, model.lately, passed)
        derated[name] = 1 - (1 - state.derated.get(name, 1.0)) * recover
    kept = {name: at for name, at in state.missed_at.items() if name in rates}
    return replace(
        state,
        at=signal.at,
        rates=MappingProxyType(rates),
        derated=MappingProxyType(derated),
        missed_at=MappingProxyType(kept),
    )


def _was_enough(state: PolicyState, signal: PoolSignal) -> bool:
    """Whether what is ready was all that was wanted, for as long as misses are counted."""
    return not signal.starting and enough_for(state.memory.most(JUDGED + SLOT)) <= signal.ready


def _derated(state: PolicyState, signal: PoolSignal) -> PolicyState:
    """Less is believed of the models whose calls are late, once a minute."""
    derated, missed_at = dict(state.derated), dict(state.missed_at)
    for model in signal.models:
        if _is_missed(model) and signal.at - missed_at.get(model.name, -math.inf) >= EVERY:
            derated[model.name] *= DERATED
            missed_at[model.name] = signal.at
    return replace(state, derated=MappingProxyType(derated), missed_at=MappingProxyType(missed_at))


def _is_missed(model: ModelSignal) -> bool:
    return (model.missed or 0.0) > model.allowed and (model.pressure or 0.0) > 1.0


def _needed(state: PolicyState, signal: PoolSignal) -> _Need | None:
    """What its models need together; None where the capacity for one that is called is unknown."""
    backlog, reasons, parts = 0.0, [], []
    for model in signal.models:
        base = state.rates[model.name].now
        if model.capacity is None or model.capacity <= 0:
            if model.recent or model.lately or model.waiting:
                return None
            continue
        capacity = model.capacity * state.derated.get(model.name, 1.0)
        usual = 0.5 * (model.limit or _LIMIT) * capacity * model.holding
        waiting = max(0.0, model.waiting - usual) / DRAINING
        parts.append((model.name, (base + waiting) / capacity))
        backlog += waiting / capacity
        if _is_missed(model):
            share = f"{100 * (model.missed or 0.0):.2g} %"
            reasons.append(Reason(Code.MISSED, f"{share} of {model.name}'s calls were too slow"))
        if model.holding < signal.ready:
            text = f"{model.holding} of {signal.ready} replicas have loaded {model.name}"
            reasons.append(Reason(Code.NOT_HELD, text))
    return _Need(sum(busy for _, busy in parts), backlog, tuple(reasons), tuple(parts))


def _unknown(
    state: PolicyState, signal: PoolSignal, bounds: Bounds
) -> tuple[PolicyState, ReplicaHint]:
    """Nobody knows what a replica bears: only what callers suffer says something."""
    there = signal.ready + signal.starting
    names = ", ".join(one.name for one in signal.models if not one.capacity)
    reasons = [
        Reason(Code.UNKNOWN, f"not enough executions yet to measure the capacity for {names}")
    ]
    desired = there
    if any(_is_missed(one) for one in signal.models) and not signal.starting:
        desired = there + 1
        reasons.append(Reason(Code.MISSED, "calls are too slow, and they wait"))
    return state, hint_of(signal, bounds, desired, math.nan, tuple(reasons), "low")


def _steps(
    state: PolicyState, signal: PoolSignal, need: _Need
) -> tuple[PolicyState, int, tuple[Reason, ...]]:
    """How many, before bounds."""
    there = signal.ready + signal.starting
    wanted = enough_for(need.busy)
    if need.is_missed and _was_enough(state, signal):
        wanted = max(wanted, there + max(1, math.ceil(0.1 * there)))
    if wanted > there:
        against = _against(signal)
        if against is not None:
            return state, there, (against,)
        most = max(2 * there, there + 4)
        code = Code.BACKLOG if need.backlog > 0.1 * need.busy else Code.DEMAND
        reasons = [Reason(code, f"{need.busy:.3g} replicas would be busy all the time")]
        if wanted > most:
            reasons.append(
                Reason(Code.STEP, f"{wanted} are needed, but one step goes up to {most}")
            )
        return state, min(wanted, most), tuple(reasons)
    return _fewer(state, signal, wanted)


def _fewer(
    state: PolicyState, signal: PoolSignal, wanted: int
) -> tuple[PolicyState, int, tuple[Reason, ...]]:
    there = signal.ready + signal.starting
    enough = max(wanted, enough_for(state.memory.most(HELD)))
    if enough >= there:
        replicas = "1 replica" if there == 1 else f"{there} replicas"
        return state, there, (Reason(Code.STEADY, f"the demand requires {replicas}"),)
    kept = min(there, state.memory.kept(enough, signal.cold_start + TICK))
    if kept == there:
        text = f"could scale down to {enough}, but {there} were needed within the last hour"
        return state, there, (Reason(Code.KEPT, text),)
    if signal.starting or state.memory.seconds < HELD:
        why = f"could scale down to {kept}" + (
            ", but some replicas are still starting"
            if signal.starting
            else " (waiting for the stabilisation window)"
        )
        return state, there, (Reason(Code.WAITING, why),)
    count, since = state.fell
    if signal.at - since >= EVERY:
        count, since = there, signal.at
    least = count - max(1, math.floor(SHARE_DOWN * count))
    desired = max(kept, min(least, there))
    if desired == there:
        return (
            state,
            there,
            (Reason(Code.WAITING, f"could scale down to {kept}, one step per minute"),),
        )
    text = f"{kept} would have been enough for the last {HELD:.0f} s"
    return replace(state, fell=(count, since)), desired, (Reason(Code.FALLING, text),)


def _against(signal: PoolSignal) -> Reason | None:
    """Why more replicas would not help."""
    if signal.utilization is None:
        return None
    used = f"the GPUs are busy {100 * signal.utilization:.0f} % of the time"
    if signal.utilization < NOT_BOUND and any(one.waiting for one in signal.models):
        return Reason(Code.NOT_GPU_BOUND, f"calls wait although {used}")
    known = [one.occupancy for one in signal.models if one.occupancy is not None and one.lately]
    if signal.utilization > FULL and known and max(known) < EMPTY:
        text = f"{used}, but the batches are at most {100 * max(known):.0f} % full"
        return Reason(Code.BATCHING, f"{text}; see servegate batching show")
    return None
