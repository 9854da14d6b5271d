"""Intervals and tests for shares of rows: Wilson, Newcombe, McNemar.

* Wilson's score interval for one share: E. B. Wilson, JASA 22 (1927).
* For the difference of two shares of the same rows: R. G. Newcombe, Statistics in Medicine 17
  (1998) 2635, method 10, which squares and adds Wilson's limits, corrected for the correlation.
* McNemar's exact test: of the rows on which only one side is right, as many of each kind as a fair
  coin would give; two-sided, as twice the smaller tail.
"""

import math
from dataclasses import dataclass

import numpy as np

_Z = 1.959963984540054  # of 95 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, or a difference of two, with the limits of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """How many rows both sides have right, only one of them, or neither."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def rows(self) -> int:
        """All of them."""
        return self.both + self.only_a + self.only_b + self.neither


def wilson(hits: int, rows: int) -> Estimate | None:
    """A share of rows; None of no rows."""
    if rows == 0:
        return None
    share, square = hits / rows, _Z * _Z
    middle = (share + square / (2 * rows)) / (1 + square / rows)
    half = (
        _Z
        / (1 + square / rows)
        * math.sqrt(share * (1 - share) / rows + square / (4 * rows * rows))
    )
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == rows else min(1.0, middle + half)
    return Estimate(share, low, high)


def newcombe(pairs: Pairs) -> Estimate | None:
    """The share that A has right less the share that B has right; None of no rows."""
    rows = pairs.rows
    a = wilson(pairs.both + pairs.only_a, rows)
    b = wilson(pairs.both + pairs.only_b, rows)
    if a is None or b is None:
        return None
    phi = _correlation(pairs)
    low_a, high_a, low_b, high_b = (
        a.value - a.low,
        a.high - a.value,
        b.value - b.low,
        b.high - b.value,
    )
    gap = a.value - b.value
    below = math.sqrt(max(0.0, low_a**2 - 2 * phi * low_a * high_b + high_b**2))
    above = math.sqrt(max(0.0, high_a**2 - 2 * phi * high_a * low_b + low_b**2))
    return Estimate(gap, gap - below, gap + above)


def mcnemar(only_a: int, only_b: int) -> float:
    """The chance of a split at least as uneven, if both sides were equally good."""
    count, fewer = only_a + only_b, min(only_a, only_b)
    if count == 0:
        return 1.0
    steps = np.arange(1, fewer + 1, dtype=np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log((count - steps + 1) / steps))])
    logs -= count * math.log(2)
    tail = math.exp(float(logs.max())) * float(np.exp(logs - logs.max()).sum())
    return min(1.0, 2 * tail)


def _correlation(pairs: Pairs) -> float:
    """Newcombe's phi, with his correction for a small positive one."""
    both, only_a, only_b, neither = pairs.both, pairs.only_a, pairs.only_b, pairs.neither
    product = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    if product == 0:
        return 0.0
    cross: float = both * neither - only_a * only_b
    if cross > 0:
        cross = max(cross - pairs.rows / 2, 0)
    return cross / math.sqrt(product)
