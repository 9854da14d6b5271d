"""How the intended rate moves over a run: its integral and the inverse, for every shape.

Λ(t) is how many calls are intended before second t. Starts lie where Λ reaches the values that
the spacing draws, so that every shape is as exact as a constant rate: even spacing takes whole
numbers, a Poisson process of rate Λ′ takes the sums of exponential gaps of mean 1 (time change:
Çınlar, Introduction to Stochastic Processes, 1975, section 4.7).

    constant, step, spike   Λ = Λᵢ + rᵢ·(t − tᵢ)                      in piece i
    ramp                    Λ = a·t + s·t²/2                          s = (b − a) ÷ seconds
    diurnal                 Λ = r·(t + A·p/2π·(1 − cos 2πt/p))        A = (x − 1) ÷ (x + 1)

The last has no inverse in closed form; Newton's method finds it, within a cell of a table.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from serve.load.plan import Arrivals, RateShape
from serve.tensors.datatypes import Array


class Curve(Protocol):
    """Λ of one run."""

    def integral(self, second: float) -> float:
        """How many calls are intended before this second."""
        ...

    def inverse(self, values: Array) -> Array:
        """The seconds at which Λ reaches each value; they are below Λ of the run's end."""
        ...


def curve(arrivals: Arrivals, seconds: float) -> Curve:
    """Of every shape but a trace, for a run of so many seconds."""
    rate, levels = arrivals.rate, arrivals.levels
    match arrivals.shape:
        case RateShape.RAMP:
            return _Line(levels[0], (levels[1] - levels[0]) / seconds)
        case RateShape.STEP:
            return _Pieces(np.arange(len(levels)) * (seconds / len(levels)), np.array(levels))
        case RateShape.SPIKE:
            edges = np.array([0.0, arrivals.at, arrivals.at + arrivals.lasting])
            return _Pieces(edges, np.array([rate, rate * levels[0], rate]))
        case RateShape.DIURNAL:
            return _Wave(rate, (levels[0] - 1) / (levels[0] + 1), arrivals.lasting)
        case _:
            return _Pieces(np.zeros(1), np.array([rate]))


class _Pieces:
    """A constant rate in every piece; `edges` are where the pieces begin."""

    def __init__(self, edges: Array, rates: Array) -> None:
        self._edges = edges
        self._rates = rates
        self._reached = np.concatenate([[0.0], np.cumsum(np.diff(edges) * rates[:-1])])

    def integral(self, second: float) -> float:
        piece = int(np.searchsorted(self._edges, second, side="right")) - 1
        return float(self._reached[piece] + (second - self._edges[piece]) * self._rates[piece])

    def inverse(self, values: Array) -> Array:
        # To the right: of several pieces that begin at one value, all but the last have rate 0.
        pieces = np.searchsorted(self._reached, values, side="right") - 1
        found: Array = self._edges[pieces] + (values - self._reached[pieces]) / self._rates[pieces]
        return found


class _Line:
    """A rate that begins at `rate` and grows by `slope` every second."""

    def __init__(self, rate: float, slope: float) -> None:
        self._rate = rate
        self._slope = slope

    def integral(self, second: float) -> float:
        return (self._rate + self._slope * second / 2) * second

    def inverse(self, values: Array) -> Array:
        # The root with the sum in the denominator: nothing cancels, and a slope of 0 is fine.
        square = self._rate**2 + 2 * self._slope * values
        below = self._rate + np.sqrt(np.maximum(square, 0.0))
        return np.divide(2 * values, below, out=np.zeros_like(values), where=below > 0)


_CELLS = 1024  # a multiple of 4: no cell has a turning point of the rate inside


class _Wave:
    """A sine of mean `rate` and relative height `swing` below 1, with a period in seconds."""

    def __init__(self, rate: float, swing: float, period: float) -> None:
        self._rate = rate
        self._period = period
        self._swing = swing
        self._table = self._phases(np.arange(_CELLS + 1) / _CELLS)

    def integral(self, second: float) -> float:
        periods = np.array([second / self._period])
        return float(self._phases(periods)[0]) * self._rate * self._period

    def inverse(self, values: Array) -> Array:
        whole, part = np.divmod(values / (self._rate * self._period), 1.0)
        cells = np.clip(np.searchsorted(self._table, part, side="right") - 1, 0, _CELLS - 1)
        low, high = cells / _CELLS, (cells + 1) / _CELLS
        at = low
        for _ in range(5):  # the error squares with each: a thousandth, then the last digit
            slope = 1 + self._swing * np.sin(2 * math.pi * at)
            at = np.clip(at - (self._phases(at) - part) / slope, low, high)
        found: Array = (whole + at) * self._period
        return found

    def _phases(self, at: Array) -> Array:
        """Λ at a time in periods, as a share of one period's calls."""
        found: Array = at + self._swing / (2 * math.pi) * (1 - np.cos(2 * math.pi * at))
        return found
