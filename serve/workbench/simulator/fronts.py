"""Fronts: what a scaler can reach with any of its parameters, and how two of them compare.

A point is a variant under a load, the mean over seeds. A front has those points of a scaler beside
which no other is better in both: late calls and cost. What lies between two of them is taken from a
line: its users could choose a parameter between theirs.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from serve.workbench.simulator.comparison import SimulationResult


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One variant under one load, over `seeds` seeds. `late_error`: the mean's standard error."""

    load: str
    scaler: str
    parameter: str
    is_usual: bool
    late: float
    late_error: float
    hours: float
    cost: float
    turns: float
    seeds: int


def points(results: Iterable[SimulationResult]) -> tuple[FrontPoint, ...]:
    """The means, in the order in which the variants first come."""
    found: defaultdict[tuple[str, str, str], list[SimulationResult]] = defaultdict(list)
    for each in results:
        found[each.load, each.scaler, each.parameter].append(each)
    return tuple(_mean(those) for those in found.values())


def front(those: Iterable[FrontPoint]) -> tuple[FrontPoint, ...]:
    """What no other is better than, of one scaler under one load, the cheapest first."""
    found: list[FrontPoint] = []
    for one in sorted(those, key=lambda one: (one.cost, one.late)):
        if not found or one.late < found[-1].late:
            found.append(one)
    return tuple(found)


def late_at(those: Iterable[FrontPoint], cost: float) -> float:
    """The least share of late calls of one scaler that costs no more; nan where all cost more."""
    line = front(those)
    found = [one.late for one in line if one.cost <= cost]
    for low, high in pairwise(line):
        if low.cost < cost < high.cost:
            part = (cost - low.cost) / (high.cost - low.cost)
            found.append(low.late + part * (high.late - low.late))
    return min(found, default=math.nan)


def cost_at(those: Iterable[FrontPoint], late: float) -> float:
    """The least cost of one scaler with no more late calls; nan where all have more."""
    line = front(those)
    found = [one.cost for one in line if one.late <= late]
    for low, high in pairwise(line):
        if low.late > late > high.late:
            part = (low.late - late) / (low.late - high.late)
            found.append(low.cost + part * (high.cost - low.cost))
    return min(found, default=math.nan)


def _mean(those: Sequence[SimulationResult]) -> FrontPoint:
    late = [one.late for one in those]
    first = those[0]
    return FrontPoint(
        first.load,
        first.scaler,
        first.parameter,
        first.is_usual,
        late=fmean(late),
        late_error=stdev(late) / math.sqrt(len(late)) if len(late) > 1 else math.nan,
        hours=fmean(one.hours for one in those),
        cost=fmean(one.hours for one in those) / fmean(one.hours / one.cost for one in those),
        turns=fmean(one.turns for one in those),
        seeds=len(those),
    )
