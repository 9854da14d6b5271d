"""Service time: how long one execution of a batch takes, ℓ(b) = a + c·b.

It is fitted to what Triton counts for each size of a batch: executions and their mean time. The
scatter between executions of one size is not counted there; what shows is how far the means of
the sizes lie from the line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_ALONE: Mapping[int, float] = MappingProxyType({1: 1.0})
_EXECUTIONS = 30  # fewer tell nothing
_HALF_LIFE = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class ExecutionPoint:
    """Executions of one size: their rows, their mean time in seconds, and how many there were."""

    rows: int
    seconds: float
    executions: float


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """The time of one execution: `fixed` + `per_row` · rows, in seconds.

    `scatter`: its coefficient of variation. `slowdown`: by what factor an execution takes longer
    while so many instances are busy at once; they share processors, or a GPU. Between the numbers
    that are told, and beyond them, it goes on in a line.
    """

    fixed: float
    per_row: float
    scatter: float = 0.0
    slowdown: Mapping[int, float] = field(default_factory=lambda: _ALONE)

    def __reduce__(self) -> tuple[type[ServiceTime], tuple[float, float, float, dict[int, float]]]:
        """For other processes: a read-only mapping cannot be sent to them."""
        return ServiceTime, (self.fixed, self.per_row, self.scatter, dict(self.slowdown))

    def time(self, rows: float, busy: float = 1) -> float:
        """Seconds for an execution of so many rows, while so many instances are busy."""
        return (self.fixed + self.per_row * rows) * self.slowed(busy)

    def slowed(self, busy: float) -> float:
        """The factor for so many busy instances; never below 1."""
        known = sorted({**_ALONE, **self.slowdown}.items())
        if busy <= 1 or len(known) == 1:
            return 1.0
        (left, low), (right, high) = known[-2], known[-1]
        for before, after in itertools.pairwise(known):
            if busy <= after[0]:
                (left, low), (right, high) = before, after
                break
        return max(1.0, low + (high - low) * (busy - left) / (right - left))

    def scaled(self, factor: float) -> ServiceTime:
        """The same, all of it slower by a factor."""
        return ServiceTime(self.fixed * factor, self.per_row * factor, self.scatter, self.slowdown)


def fitted(points: Iterable[ExecutionPoint]) -> ServiceTime | None:
    """The line through the points, a ≥ 0, c > 0, that is off by the least share of each.

    A mean of n executions of t seconds scatters with t ÷ √n, so its weight is n ÷ t². None below 30
    executions, or with one size only: then `at_one_size` says what is possible.
    """
    known = [point for point in points if point.executions > 0 and point.seconds > 0]
    executions = sum(point.executions for point in known)
    if executions < _EXECUTIONS or len({point.rows for point in known}) < 2:
        return None
    weighted = [(point.executions / point.seconds**2, point) for point in known]
    total = sum(weight for weight, _ in weighted)
    mean_rows = sum(weight * point.rows for weight, point in weighted) / total
    mean = sum(weight * point.seconds for weight, point in weighted) / total
    across = sum(weight * (each.rows - mean_rows) ** 2 for weight, each in weighted)
    along = sum(weight * (each.rows - mean_rows) * each.seconds for weight, each in weighted)
    per_row = along / across
    fixed = mean - per_row * mean_rows
    if fixed < 0:  # the line through the origin
        squares = sum(weight * each.rows**2 for weight, each in weighted)
        products = sum(weight * each.rows * each.seconds for weight, each in weighted)
        fixed, per_row = 0.0, products / squares
    if per_row <= 0:  # more rows cost nothing that can be seen
        fixed, per_row = mean * (1 - 1e-6), mean * 1e-6 / mean_rows
    return ServiceTime(fixed, per_row, scatter=_scatter(known, fixed, per_row))


def at_one_size(points: Iterable[ExecutionPoint]) -> float | None:
    """Mean seconds of an execution at the only size there was: a service time, but no line."""
    known = [point for point in points if point.executions > 0]
    total = sum(point.executions for point in known)
    if total < _EXECUTIONS or len({point.rows for point in known}) != 1:
        return None
    return sum(point.seconds * point.executions for point in known) / total


def _scatter(points: Iterable[ExecutionPoint], fixed: float, per_row: float) -> float:
    """How far the sizes' means lie from the line, relatively: a lower bound of the scatter."""
    known = list(points)
    total = sum(point.executions for point in known)
    square = sum(
        point.executions * (point.seconds / (fixed + per_row * point.rows) - 1) ** 2
        for point in known
    )
    return math.sqrt(square / total)


class Decaying:
    """A running estimate: what was counted long ago weighs less, half of it every `half_life`."""

    def __init__(self, half_life: float = _HALF_LIFE) -> None:
        self._half_life = half_life
        self._sums: dict[int, tuple[float, float]] = {}  # rows: executions, seconds in all
        self._at = -math.inf

    def __repr__(self) -> str:
        executions = sum(count for count, _ in self._sums.values())
        return f"<Decaying of {executions:.0f} executions of {len(self._sums)} sizes>"

    def add(self, rises: Iterable[ExecutionPoint], at: float) -> None:
        """Count in what was executed up to `at`, in seconds of a monotonic clock."""
        self._age(at)
        for point in rises:
            count, seconds = self._sums.get(point.rows, (0.0, 0.0))
            more = point.seconds * point.executions
            self._sums[point.rows] = (count + point.executions, seconds + more)

    def points(self, at: float) -> tuple[ExecutionPoint, ...]:
        """What is left at that time, by ascending size."""
        left = self._left(at)
        return tuple(
            ExecutionPoint(rows, seconds / count, count * left)
            for rows, (count, seconds) in sorted(self._sums.items())
            if count * left > 0.5
        )

    def _age(self, at: float) -> None:
        left = self._left(at)
        self._at = max(self._at, at)
        self._sums = {
            rows: (count * left, seconds * left) for rows, (count, seconds) in self._sums.items()
        }

    def _left(self, at: float) -> float:
        if self._at == -math.inf:
            return 1.0
        return float(0.5 ** (max(0.0, at - self._at) / self._half_life))
