"""The goals of the scaling policy, and how far what was measured is from each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serve.workbench.simulator.comparison import (
    CALLS,
    FIRST_HALF,
    FIXED,
    HINDSIGHT,
    KPA,
    ORACLE,
    OURS,
    RAY,
    UTILISATION,
)
from serve.workbench.simulator.fronts import FrontPoint, cost_at, late_at

CALM = {"steady": (0.0, 1.25), "diurnal": (0.0, 1.25), "ramp": (0.0, 1.25)}
TRACED = {"azure-conv": (0.003, 1.15)}
BURSTY = ("step", "spikes", "mmpp", "on-off", "gamma-2", "gamma-4", "azure-conv")
FEWER = 1.5  # times, at the same cost
CHEAPER = 2.0  # times, with the same late calls
TURNS = 10.0  # an hour
SAME = 0.05  # of the cost
_NONE = 0.5e-5  # a share that is shown as 0


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal under one load. `is_met` is None where nothing can be compared."""

    load: str
    wanted: str
    found: str
    is_met: bool | None


def goals(points: Sequence[FrontPoint]) -> Iterator[Goal]:
    """All, load by load."""
    for ours in (one for one in points if one.scaler == OURS):
        here = [one for one in points if one.load == ours.load]
        limits = {**CALM, **TRACED}.get(ours.load)
        if limits is not None:
            yield _absolute(ours, *limits)
        if ours.load in BURSTY:
            yield _fewer(ours, here)
        yield _cheaper(ours, here)
        yield Goal(
            ours.load,
            f"at most {TURNS:g} changes of direction per hour",
            f"{ours.turns:.1f}",
            ours.turns <= TURNS,
        )


@dataclass(frozen=True, slots=True)
class Equal:
    """What others cost under one load with as few late calls as ours, ÷ ours.

    `nan` where none has so few. `chosen` is the fixed fleet by the first half, which knows less, so
    that it has a share of late calls of its own.
    """

    load: str
    ours: FrontPoint
    oracle_late: float
    calls: float
    utilisation: float
    hindsight: float
    chosen: float
    chosen_late: float


def equals(points: Sequence[FrontPoint]) -> Iterator[Equal]:
    """Everybody at equal lateness, load by load."""
    for ours in (one for one in points if one.scaler == OURS):
        here = [one for one in points if one.load == ours.load]
        found = {(one.scaler, one.parameter): one for one in here}
        best, chosen = found[FIXED, HINDSIGHT], found[FIXED, FIRST_HALF]
        allowed = max(ours.late, _NONE)
        yield Equal(
            ours.load,
            ours,
            found[ORACLE, ""].late,
            cost_at(_front(here, CALLS), allowed) / ours.cost,
            cost_at(_front(here, UTILISATION), allowed) / ours.cost,
            best.cost / ours.cost if best.late <= allowed else math.nan,
            chosen.cost / ours.cost,
            chosen.late,
        )


def _absolute(ours: FrontPoint, late: float, cost: float) -> Goal:
    share = f"at most {100 * late:g} %" if late else "no"
    return Goal(
        ours.load,
        f"{share} late calls, at no more than {cost:g} times the oracle's cost",
        f"{100 * ours.late:.2g} % at × {ours.cost:.2f}",
        ours.late <= late + _NONE and ours.cost <= cost + 0.005,
    )


def _fewer(ours: FrontPoint, here: Sequence[FrontPoint]) -> Goal:
    """Against the best of the others at exactly its cost; what 5 % more buys is told, too."""
    wanted = (
        f"the best alternative has at least {FEWER:g} times as many late calls at the same cost"
    )
    best, late = _best(here, ours.cost)
    dearer, fewer = _best(here, ours.cost * (1 + SAME))
    if not dearer:
        return Goal(ours.load, wanted, "no other scaler costs so little", True)
    if fewer <= _NONE and ours.late <= _NONE:
        return Goal(ours.load, wanted, f"none here, none with {dearer}", None)
    text = f"{_times(fewer, ours.late)} at 5 % higher cost: {dearer} {100 * fewer:.2g} %"
    if best:
        text = f"{_times(late, ours.late)}: {best} {100 * late:.2g} %; {text}"
    ratio = late / ours.late if ours.late > 0 else math.inf
    return Goal(
        ours.load, wanted, f"{text}; here {100 * ours.late:.2g} %", not best or ratio >= FEWER
    )


def _best(here: Sequence[FrontPoint], cost: float) -> tuple[str, float]:
    """Which other has the fewest late calls at a cost, and their share; "" where all cost more."""
    found = {scaler: late_at(_front(here, scaler), cost) for scaler in (CALLS, KPA, RAY)}
    known = {scaler: late for scaler, late in found.items() if not math.isnan(late)}
    best = min(known, key=lambda scaler: known[scaler], default="")
    return best, known.get(best, math.nan)


def _times(late: float, ours: float) -> str:
    return f"{late / ours:.2f} times" if ours > 0 else "none here"


def _cheaper(ours: FrontPoint, here: Sequence[FrontPoint]) -> Goal:
    """Against an autoscaler on utilisation with as few late calls."""
    wanted = (
        f"at most {100 / CHEAPER:g} % of the GPU-hours of {UTILISATION}, with as few late calls"
    )
    front = _front(here, UTILISATION)
    cost = cost_at(front, max(ours.late, _NONE))
    if math.isnan(cost):
        least = min(front, key=lambda one: one.late, default=None)
        if least is None:
            return Goal(ours.load, wanted, "not measured", None)
        best = f"{100 * least.late:.2g} % at {least.cost:.2f} times the oracle's cost"
        text = f"no target has as few late calls; the best has {best}"
        return Goal(ours.load, wanted, text, True)
    ratio = cost / ours.cost
    return Goal(ours.load, wanted, f"{ratio:.2f} times (× {cost:.2f})", ratio >= CHEAPER)


def _front(here: Sequence[FrontPoint], scaler: str) -> list[FrontPoint]:
    return [one for one in here if one.scaler == scaler]
