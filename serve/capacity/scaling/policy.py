"""The policy: demand ÷ measured capacity, with guards. Pure: a state and a signal give the next.

Demand of a model, in calls per second, with what it had at its peak fading by half in `FADING`:

    base = max(lately, recent − 2·√(recent ÷ T), m·peak)        m = cold start ÷ (cold start + 60 s)
    D    = base + max(0, waiting − ½·limit·capacity·holding) ÷ 30 s

In replicas that are busy all the time: Σ D ÷ capacity, over the pool's models. So many are wanted
that they are busy for `UP` of their time; and fewer only when the most of the last `HELD` seconds,
at `DOWN`, needs fewer, none is starting, and by no more than a quarter a minute.

Where the numbers come from: `docs/autoscaling.md`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from serve.capacity.scaling.signals import (
    Bounds,
    Code,
    Hint,
    ModelSignal,
    PoolSignal,
    Reason,
    invalid,
)

TICK = 5.0  # seconds from one decision to the next
UP, DOWN = 0.85, 0.70  # shares of the capacity
HELD = 300.0  # seconds
FADING = 1800.0  # seconds in which a peak fades by half
DRAINING = 30.0  # seconds in which a backlog is to be worked off
SHARE_DOWN, EVERY = 0.25, 60.0  # at most so much less, in so many seconds
MISSED = 0.01  # share of calls beyond the objective that is too much
DERATED = 0.9  # of the capacity, after a miss
RECOVERING = 900.0  # seconds in which half of that is forgotten
STALE = 15.0  # seconds
RESTARTED = 60.0  # seconds after a start in which nothing is changed
IDLE, COLD_STARTS = 300.0, 10.0  # seconds, and cold starts, without a call until there are none
NOT_BOUND, FULL, EMPTY = 0.3, 0.95, 0.3  # utilisation below and above, occupancy below
_LIMIT = 1.0  # seconds, where a model has no objective
_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class State:
    """What the policy remembers of a pool. Times as in `PoolSignal.at`.

    `peaks`: calls per second by model. `derated`: by model, what its capacity is multiplied by.
    `needs`: replicas that were needed at `DOWN`, by time, ascending. `fell`: replicas at the
    beginning of the present minute of falling, and when that was. `missed_at`: by model, when its
    capacity was last lowered.
    """

    began: float
    at: float
    peaks: Mapping[str, float] = field(default_factory=lambda: _NONE)
    derated: Mapping[str, float] = field(default_factory=lambda: _NONE)
    missed_at: Mapping[str, float] = field(default_factory=lambda: _NONE)
    needs: tuple[tuple[float, float], ...] = ()
    fell: tuple[int, float] = (0, -math.inf)


@dataclass(frozen=True, slots=True)
class _Need:
    """What a pool needs, in replicas that are busy all the time, and why it is so much."""

    busy: float
    backlog: float
    reasons: tuple[Reason, ...]
    parts: tuple[tuple[str, float], ...] = ()


def begin(at: float) -> State:
    """Nothing is known yet; `at` as in `PoolSignal`."""
    return State(at, at)


def decide(state: State, signal: PoolSignal, bounds: Bounds) -> tuple[State, Hint]:
    """The hint for what is seen now, and what is to be remembered until the next."""
    wrong = _wrong(signal)
    if not wrong and _is_called_in_vain(signal, bounds):
        reason = Reason(Code.WAKING, "it is needed, and there is no replica")
        return state, _hint(signal, bounds, 1, 0.0, (reason,))
    held = wrong or _held(state, signal)
    if held:
        return state, _hint(signal, bounds, signal.ready + signal.starting, math.nan, held, "low")
    state = _remember(state, signal)
    if _is_idle(signal, bounds):
        reason = Reason(Code.IDLE, f"nobody has called for {signal.idle:.0f} s")
        return state, _hint(signal, bounds, 0, 0.0, (reason,))
    need = _needed(state, signal)
    if need is None:
        return _unknown(state, signal, bounds)
    state = _noted(state, signal.at, need)
    state, desired, reasons = _steps(state, signal, need)
    hint = _hint(signal, bounds, desired, need.busy, (*reasons, *need.reasons))
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


def _held(state: State, signal: PoolSignal) -> tuple[Reason, ...]:
    """Why nothing may be changed now; empty when that is not so."""
    stale = [one for one in signal.models if one.age > STALE]
    if stale:
        oldest = max(stale, key=lambda one: one.age)
        return (Reason(Code.STALE, f"{oldest.name} was last seen {oldest.age:.0f} s ago"),)
    left = RESTARTED - (signal.at - state.began)
    if left > 0:
        return (Reason(Code.RESTARTED, f"it has just begun: nothing changes for {left:.0f} s"),)
    return ()


def _remember(state: State, signal: PoolSignal) -> State:
    """Peaks fade, lowered capacities recover, misses lower them."""
    passed = max(0.0, signal.at - state.at)
    fade, recover = 2 ** (-passed / FADING), 2 ** (-passed / RECOVERING)
    peaks, derated, missed_at = {}, {}, dict(state.missed_at)
    for model in signal.models:
        peaks[model.name] = max(state.peaks.get(model.name, 0.0) * fade, model.lately)
        factor = 1 - (1 - state.derated.get(model.name, 1.0)) * recover
        if _is_missed(model) and signal.at - missed_at.get(model.name, -math.inf) >= EVERY:
            factor *= DERATED
            missed_at[model.name] = signal.at
        derated[model.name] = factor
    return replace(
        state,
        at=signal.at,
        peaks=MappingProxyType(peaks),
        derated=MappingProxyType(derated),
        missed_at=MappingProxyType({name: missed_at[name] for name in peaks if name in missed_at}),
    )


def _is_missed(model: ModelSignal) -> bool:
    return (model.missed or 0.0) > MISSED and (model.pressure or 0.0) > 1.0


def _needed(state: State, signal: PoolSignal) -> _Need | None:
    """What its models need together; None where the capacity for one that is called is unknown."""
    keeping = signal.cold_start / (signal.cold_start + 60.0)
    backlog, reasons, parts = 0.0, [], []
    for model in signal.models:
        peak = keeping * state.peaks.get(model.name, 0.0)
        sure = model.recent - 2 * math.sqrt(model.recent / TICK)
        base = max(model.lately, sure, peak)
        if model.capacity is None or model.capacity <= 0:
            if base or model.waiting:
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
            text = f"{model.holding} of {signal.ready} replicas hold {model.name}"
            reasons.append(Reason(Code.NOT_HELD, text))
    return _Need(sum(busy for _, busy in parts), backlog, tuple(reasons), tuple(parts))


def _unknown(state: State, signal: PoolSignal, bounds: Bounds) -> tuple[State, Hint]:
    """Nobody knows what a replica bears: only what callers suffer says something."""
    there = signal.ready + signal.starting
    names = ", ".join(one.name for one in signal.models if not one.capacity)
    reasons = [Reason(Code.UNKNOWN, f"too little was executed to tell what {names} needs")]
    desired = there
    if any(_is_missed(one) for one in signal.models) and not signal.starting:
        desired = there + 1
        reasons.append(Reason(Code.MISSED, "calls are too slow, and wait"))
    return state, _hint(signal, bounds, desired, math.nan, tuple(reasons), "low")


def _noted(state: State, at: float, need: _Need) -> State:
    kept = tuple(one for one in state.needs if one[0] >= at - HELD)
    return replace(state, needs=(*kept, (at, need.busy / DOWN)))


def _steps(state: State, signal: PoolSignal, need: _Need) -> tuple[State, int, tuple[Reason, ...]]:
    """How many, before bounds."""
    there = signal.ready + signal.starting
    wanted = _whole(need.busy / UP)
    if Code.MISSED in {one.code for one in need.reasons} and not signal.starting:
        wanted = max(wanted, there + max(1, math.ceil(0.1 * there)))
    if wanted > there:
        against = _against(signal)
        if against is not None:
            return state, there, (against,)
        most = max(2 * there, there + 4)
        code = Code.BACKLOG if need.backlog > 0.1 * need.busy else Code.DEMAND
        reasons = [Reason(code, f"{need.busy:.3g} replicas would be busy all the time")]
        if wanted > most:
            reasons.append(Reason(Code.STEP, f"{wanted} are needed, {most} in one step"))
        return state, min(wanted, most), tuple(reasons)
    return _fewer(state, signal, there)


def _fewer(state: State, signal: PoolSignal, there: int) -> tuple[State, int, tuple[Reason, ...]]:
    enough = max(_whole(max(need for _, need in state.needs)), 0)
    if enough >= there:
        return state, there, (Reason(Code.STEADY, f"{there} are right"),)
    watched = signal.at - state.needs[0][0]
    if signal.starting or watched < HELD - TICK:
        why = f"{enough} would do" + (", and some still start" if signal.starting else "")
        return state, there, (Reason(Code.WAITING, why),)
    count, since = state.fell
    if signal.at - since >= EVERY:
        count, since = there, signal.at
    least = count - max(1, math.floor(SHARE_DOWN * count))
    desired = max(enough, min(least, there))
    if desired == there:
        return state, there, (Reason(Code.WAITING, f"{enough} would do; a quarter a minute goes"),)
    text = f"{enough} would have done for {HELD:.0f} s"
    return replace(state, fell=(count, since)), desired, (Reason(Code.FALLING, text),)


def _against(signal: PoolSignal) -> Reason | None:
    """Why more replicas would not help."""
    if signal.utilization is None:
        return None
    used = f"the GPUs are busy for {100 * signal.utilization:.0f} % of the time"
    if signal.utilization < NOT_BOUND and any(one.waiting for one in signal.models):
        return Reason(Code.NOT_GPU_BOUND, f"calls wait although {used}")
    known = [one.occupancy for one in signal.models if one.occupancy is not None and one.lately]
    if signal.utilization > FULL and known and max(known) < EMPTY:
        text = f"{used}, with batches that are {100 * max(known):.0f} % full at most"
        return Reason(Code.BATCHING, f"{text}: servegate batching show tells what to do")
    return None


def _hint(
    signal: PoolSignal,
    bounds: Bounds,
    desired: int,
    demand: float,
    reasons: tuple[Reason, ...],
    confidence: str = "high",
) -> Hint:
    """Within what people allow."""
    codes = {one.code for one in reasons}
    said = list(reasons)
    has_none = Code.IDLE in codes or not signal.ready + signal.starting
    least = 0 if bounds.to_zero and has_none else bounds.least
    if desired < least:
        desired = least
        said.append(Reason(Code.LEAST, f"at least {least}"))
    most = bounds.most if bounds.budget is None else min(bounds.most, bounds.budget)
    if desired > most:
        code = Code.MOST if most == bounds.most else Code.BUDGET
        said.append(Reason(code, f"{desired} would be right, and {most} are allowed"))
        desired = most
    return Hint(
        signal.name,
        desired,
        signal.ready,
        signal.starting,
        demand,
        tuple(said),
        confidence,
    )


def _whole(replicas: float) -> int:
    """Rounded up, but for what is only the arithmetic's."""
    return math.ceil(replicas - 1e-9)
