"""What the hints of many pools cost: one round of decisions, from 10 to 10,000 pools.

A round is what the control plane does every five seconds once everything is read: it decides for
each pool, and puts the hints on the board. The pools have two models each, loads that differ, and
a memory that is full: twenty of them have lived through all of it, and the others have it from one
of these. Counted is CPU time, because others may use the machine as well; sizes take turns, so that
all of them see it as it was.

Prints a table in Markdown, writes `loadtests/results/hint-cost-*.json` and draws
`docs/images/hint-cost.svg`.
"""

import argparse
import dataclasses
import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtests.bench import machine
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.start import ROOT
from serve.capacity.scaling.policy import REMEMBERED, TICK, PolicyState, begin, decide
from serve.capacity.scaling.signals import Bounds, ModelSignal, PoolSignal
from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers
from serve.pages.charts import Axis, Chart, ChartSeries, draw

PICTURE = ROOT / "docs" / "images" / "hint-cost.svg"
COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000)
_KINDS = 20  # pools whose loads differ
_BOUNDS = Bounds(least=1, most=64)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round for so many pools: the CPU seconds of each that was measured."""

    pools: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Growth:
    """median = `fixed` + `per_pool` · pools, in seconds; median ∝ pools^`exponent`, from 100 on."""

    fixed: float
    per_pool: float
    exponent: float
    explained: float  # R² of the line


class Pools:
    """So many pools whose loads go up and down; a round decides for all of them."""

    def __init__(self, count: int, seed: int) -> None:
        draw_ = random.Random(seed)
        self._phases = [draw_.uniform(0, 2 * math.pi) for _ in range(_KINDS)]
        self._names = [f"pool-{number}" for number in range(_KINDS)]
        self._board = HintBoard()
        self._at = 0.0
        self._states: list[PolicyState] = [begin(0.0) for _ in range(_KINDS)]
        self._ready = [1] * _KINDS
        while self._at < REMEMBERED:
            self.round()
        self._phases = [self._phases[number % _KINDS] for number in range(count)]
        self._names = [f"pool-{number}" for number in range(count)]
        self._states = [_copied(self._states[number % _KINDS]) for number in range(count)]
        self._ready = [self._ready[number % _KINDS] for number in range(count)]

    def round(self) -> float:
        """One more, five seconds later; its CPU seconds, without those of making the signals."""
        self._at += TICK
        signals = [self._signal(number) for number in range(len(self._names))]
        began = time.thread_time()
        told = []
        for number, signal in enumerate(signals):
            self._states[number], hint = decide(self._states[number], signal, _BOUNDS)
            told.append(PoolNumbers(hint, signal, _BOUNDS, self._at))
        self._board.put(told)
        took = time.thread_time() - began
        self._ready = [one.hint.desired for one in told]
        return took

    def _signal(self, number: int) -> PoolSignal:
        wave = 1.0 + math.sin(self._phases[number] + self._at / 60.0)
        models = tuple(
            ModelSignal(
                *(name, 200.0 * wave, 190.0 * wave, 3.0),
                capacity=capacity,
                holding=self._ready[number],
                limit=0.1,
                missed=0.0,
                pressure=0.2,
                occupancy=0.5,
                age=1.0,
            )
            for name, capacity in (("digits", 80.0), ("other", 250.0))
        )
        return PoolSignal(
            *(self._names[number], self._at, self._ready[number], 0, models), utilization=0.6
        )


def measure(counts: Sequence[int], rounds: int) -> tuple[Cost, ...]:
    """All sizes, in turns."""
    every = {count: Pools(count, seed=count) for count in counts}
    for pools in every.values():
        pools.round()
    found: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count, pools in every.items():
            found[count].append(pools.round())
    return tuple(Cost(count, tuple(seconds)) for count, seconds in found.items())


def _copied(state: PolicyState) -> PolicyState:
    """With a memory of its own, as another pool would have it."""
    needs = tuple(need * 1.01 for need in state.memory.needs)
    return dataclasses.replace(state, memory=dataclasses.replace(state.memory, needs=needs))


def growth(costs: Sequence[Cost]) -> Growth:
    """How the median grows with the number of pools."""
    pools = np.array([float(one.pools) for one in costs])
    seconds = np.array([one.median for one in costs])
    # Relative errors count: else the largest size alone would say what the line is.
    design = np.stack([np.ones_like(pools), pools], axis=1) / seconds[:, None]
    fixed, per_pool = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)[0]
    line = fixed + per_pool * pools
    explained = 1 - ((seconds - line) ** 2).sum() / ((seconds - seconds.mean()) ** 2).sum()
    is_large = pools >= 100
    exponent = np.polyfit(np.log(pools[is_large]), np.log(seconds[is_large]), 1)[0]
    return Growth(float(fixed), float(per_pool), float(exponent), float(explained))


def table(costs: Sequence[Cost], found: Growth) -> Iterator[str]:
    """Markdown."""
    yield "| pools | CPU time of a round | per pool |"
    yield "|---:|---:|---:|"
    for one in costs:
        each = 1e6 * one.median / one.pools
        yield f"| {one.pools:,} | {1e3 * one.median:.3g} ms | {each:.1f} µs |"
    yield ""
    yield (
        f"A round takes {1e6 * found.per_pool:.1f} µs of CPU time per pool (R² "
        f"{found.explained:.4f}). From 100 pools on, it grows with the number of pools to "
        f"the power of {found.exponent:.2f}."
    )


def chart(costs: Sequence[Cost], found: Growth) -> Chart:
    """Medians, and the line through them."""
    medians = tuple((float(one.pools), 1e3 * one.median) for one in costs)
    line = tuple(
        (float(one.pools), 1e3 * (found.fixed + found.per_pool * one.pools))
        for one in costs
        if found.fixed + found.per_pool * one.pools > 0
    )
    return Chart(
        "One round of hints, by the number of pools",
        Axis("pools", is_log=True),
        Axis("milliseconds of CPU time", is_log=True),
        (
            ChartSeries("measured, median", medians),
            ChartSeries(f"{1e6 * found.per_pool:.1f} µs per pool", line, "line"),
        ),
    )


def page(costs: Sequence[Cost], found: Growth) -> Mapping[str, object]:
    """The JSON form."""
    return {
        "date": today(),
        "machine": machine.describe(),
        "costs": [dataclasses.asdict(one) | {"median": one.median} for one in costs],
        "growth": dataclasses.asdict(found),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    asked = parser.parse_args()
    costs = measure(COUNTS, asked.rounds)
    found = growth(costs)
    print("\n".join(table(costs, found)))
    path = FOLDER / f"hint-cost-{today()}.json"
    write_page(path, dict(page(costs, found)))
    PICTURE.write_text(draw(chart(costs, found)))
    print(f"\nwrote {path.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
