"""The seconds of runs as matrices, so that a thousand other runs can be drawn from them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serve.load.histogram import middles
from serve.load.record import RIGHT, RecordWindow
from serve.load.reports.counts import before_end, span
from serve.load.reports.report import LoadRun
from serve.load.reports.summary import latencies_of
from serve.tensors.datatypes import Array

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_BLOCKS = 600  # at most; more seconds than that are taken several at a time


@dataclass(frozen=True, slots=True)
class RunBlocks:
    """Some runs' seconds, in blocks of one second or a few, one row each.

    `places`: the buckets that are in use, ascending. `below`: buckets × blocks, calls in a bucket
    or a smaller one, of those that `counting.is_waited` counts. `totals`: their latencies' sum, in
    seconds. `calls`, `right`: of all calls. `in_time`: right answers before the end of their run.
    `seconds`: in the block.
    """

    places: Array
    below: Array
    totals: Array
    calls: Array
    right: Array
    in_time: Array
    seconds: Array

    @classmethod
    def of(cls, runs: Sequence[LoadRun]) -> RunBlocks:
        """Of the runs' seconds, one run after the other; a second without a window is empty."""
        seconds = [each for run in runs for each in _seconds(run)]
        size = max(1, math.ceil(len(seconds) / _BLOCKS))
        blocks = [seconds[at : at + size] for at in range(0, len(seconds), size)]
        places, counts = _matrix(blocks)
        sums = np.array([_sums(block) for block in blocks], np.float64).reshape(-1, 4)
        return cls(places, np.cumsum(counts.T, axis=0), counts @ middles(places), *sums.T)

    def __len__(self) -> int:
        return len(self.seconds)

    def drawn(self, draws: np.random.Generator, times: int) -> dict[str, Array]:
        """The measures of so many sets of blocks, each drawn with replacement."""
        count = len(self)
        weights = draws.multinomial(count, np.full(count, 1 / count), size=times)
        return self.measures(weights.astype(np.float64))

    def whole(self) -> dict[str, float]:
        """The measures of what there is."""
        return {name: float(one[0]) for name, one in self.measures(np.ones((1, len(self)))).items()}

    def measures(self, weights: Array) -> dict[str, Array]:
        """Of `weights`, draws × blocks, each measure's value per draw; nan where there is none."""
        counted = weights @ self.below[-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            return {
                name: self._quantile(weights, counted, at) for name, at in QUANTILES.items()
            } | {
                "mean": (weights @ self.totals) / counted,
                "rate": (weights @ self.in_time) / (weights @ self.seconds),
                "right": (weights @ self.right) / (weights @ self.calls),
            }

    def _quantile(self, weights: Array, counted: Array, share: float) -> Array:
        """By bisection over the buckets, for all draws at once: the first with enough below it."""
        ranks = np.maximum(np.ceil(share * counted - 1e-9), 1)
        low = np.zeros(len(weights), np.int64)
        high = np.full(len(weights), len(self.places) - 1)
        while np.any(low < high):
            middle = (low + high) // 2
            is_enough = np.einsum("ij,ij->i", weights, self.below[middle]) >= ranks
            low, high = (
                np.where(is_enough, low, np.minimum(middle + 1, high)),
                np.where(is_enough, middle, high),
            )
        found: Array = np.where(counted > 0, middles(self.places[low]), np.nan)
        return found


_Block = Sequence[tuple[RecordWindow, float]]  # each window with the seconds left of its run


def _seconds(run: LoadRun) -> _Block:
    windows, width = run.record.windows, span(run)
    return [(windows.get(at, RecordWindow()), width - at) for at in range(math.ceil(width))]


def _matrix(blocks: Sequence[_Block]) -> tuple[Array, Array]:
    """The buckets in use, and blocks × buckets of calls."""
    times = [latencies_of(window for window, _ in block).to_json() for block in blocks]
    places = np.array(sorted({place for used, _ in times for place in used} or {0}), np.int64)
    counts = np.zeros((len(blocks), len(places)))
    for row, (used, found) in zip(counts, times, strict=True):
        row[np.searchsorted(places, used)] = found
    return places, counts


def _sums(block: _Block) -> tuple[float, float, float, float]:
    """All calls, right ones, those answered in time, and seconds."""
    cells = [(key, cell, left) for window, left in block for key, cell in window.cells.items()]
    right = [(cell, left) for key, cell, left in cells if key.outcome == RIGHT]
    return (
        sum(cell.calls for _, cell, _ in cells),
        sum(cell.calls for cell, _ in right),
        sum(before_end(cell, left) for cell, left in right),
        sum(min(1.0, left) for _, left in block),
    )
