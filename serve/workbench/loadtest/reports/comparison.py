"""Two measurements of the same thing: how much slower or faster, and how sure that is.

Each ratio is after ÷ before, with a 95 % interval. What it means depends on the runs there are:

**Fewer than three runs on a side**: a bootstrap over seconds. Each side's seconds (of all its runs)
are drawn again with replacement, a thousand times, and the ratio is taken each time; the interval
holds the middle 95 %. It says how far the ratio would move if the same runs had met other seconds
of the same kind. It knows nothing of what differs between one run and the next (another start, a
warmer machine), so it is too narrow for "is the new version slower": measure rounds for that. Whole
seconds are drawn, because calls of one second depend on each other; beyond 600 seconds, several
together. Measured on simulated servers whose seconds differ: from 20 seconds on, 94 to 97 of 100
intervals hold the truth, of 5 seconds 87 to 91.

**At least three on each**: pairs, in order: the first with the first, as they were measured in
turns. The ratio is the geometric mean of the pairs' ratios, the interval Student's t on their
logarithms. It holds what differs from run to run, and is the one to trust. Runs without a partner
are left out.

An interval that holds 1 says that no difference was seen, not that there is none.

The seconds of runs as matrices, so that a thousand other runs can be drawn from them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.loadtest.histogram import middles
from serve.workbench.loadtest.record import RIGHT, RecordWindow
from serve.workbench.loadtest.reports.counts import before_end, span
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import latencies_of

# --- bootstrap ------------------------------------------------------------------------------------


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


# --- two measurements of the same thing -----------------------------------------------------------


DRAWS = 1000
PAIRS = 3  # runs on each side from which pairs are compared
_MIDDLE = (2.5, 97.5)  # per cent
_LARGER_IS_BETTER = {"rate": ("faster", "slower"), "right": ("better", "worse")}
_STUDENT = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
)  # 1 to 10 degrees


@dataclass(frozen=True, slots=True)
class Ratio:
    """After ÷ before, with its 95 % interval.

    `name`: p50, p90, p99 or mean of the latency; `rate`, right answers per second; `right`, their
    share of all calls (it stands for the errors: a ratio to no errors would say nothing). `before`
    and `after` are what was measured, in seconds, per second or as a share; of pairs, their
    geometric means.
    """

    name: str
    ratio: float
    low: float
    high: float
    before: float = math.nan
    after: float = math.nan


def compare(
    before: Sequence[LoadRun], after: Sequence[LoadRun], *, seed: int = 0
) -> tuple[Ratio, ...]:
    """The ratios that can be taken: what is 0 or unknown on a side is left out."""
    if not before or not after:
        return ()
    if min(len(before), len(after)) >= PAIRS:
        return _by_pairs(before, after)
    return _by_seconds(before, after, np.random.default_rng(seed))


def verdict(ratio: Ratio) -> str:
    """`faster` or `slower` (of right answers, `better` or `worse`), or that none was seen."""
    if ratio.low <= 1 <= ratio.high:
        return "no difference seen"
    more, less = _LARGER_IS_BETTER.get(ratio.name, ("slower", "faster"))
    return more if ratio.ratio > 1 else less


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's t.

    From a table up to 10 degrees of freedom; beyond, the expansion by Cornish and Fisher
    (Abramowitz and Stegun 26.7.5), which is good to three digits there.
    """
    if degrees <= len(_STUDENT):
        return _STUDENT[degrees - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def _by_seconds(
    before: Sequence[LoadRun], after: Sequence[LoadRun], draws: np.random.Generator
) -> tuple[Ratio, ...]:
    old, new = RunBlocks.of(before), RunBlocks.of(after)
    if not (len(old) and len(new)):
        return ()
    were, are = old.whole(), new.whole()
    drawn_old, drawn_new = old.drawn(draws, DRAWS), new.drawn(draws, DRAWS)
    made = []
    for name, was in were.items():
        if _is_usable(was) and _is_usable(are[name]):
            low, high = _interval(drawn_old[name], drawn_new[name])
            made.append(Ratio(name, are[name] / was, low, high, was, are[name]))
    return tuple(made)


def _interval(before: Array, after: Array) -> tuple[float, float]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = after / before
    low, high = np.percentile(ratios[np.isfinite(ratios)], _MIDDLE)
    return float(low), float(high)


def _by_pairs(before: Sequence[LoadRun], after: Sequence[LoadRun]) -> tuple[Ratio, ...]:
    pairs = [
        (RunBlocks.of([old]).whole(), RunBlocks.of([new]).whole())
        for old, new in zip(before, after, strict=False)
    ]
    made = []
    for name in pairs[0][0]:
        values = [(old[name], new[name]) for old, new in pairs]
        if all(_is_usable(value) for pair in values for value in pair):
            made.append(_paired(name, np.log(np.array(values))))
    return tuple(made)


def _paired(name: str, logarithms: Array) -> Ratio:
    """`logarithms`: pairs × (before, after)."""
    differences = logarithms[:, 1] - logarithms[:, 0]
    count = len(differences)
    middle = float(differences.mean())
    half = student(count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    before, after = np.exp(logarithms.mean(axis=0)).tolist()
    ends = (math.exp(middle - half), math.exp(middle + half))
    return Ratio(name, math.exp(middle), *ends, before, after)


def _is_usable(value: float) -> bool:
    return math.isfinite(value) and value > 0
