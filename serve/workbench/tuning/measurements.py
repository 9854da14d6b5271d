"""Measurements: what the search asks for, made with real load and judged by the generator's report.

| ask         | load                                                                           |
|-------------|--------------------------------------------------------------------------------|
| Calibration | a closed loop of so many callers, each at once again when it is answered       |
| Trial       | an open loop: Poisson arrivals, or a trace's, as fast as the rate wants        |

A measurement in which the generator, not the server, was the limit is void. It is made once more;
then it is taken as it is, and the report says so. Arrivals that found no connection free are no
reason: so many calls are in flight only where the objective is missed by far.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from serve.capacity.measurements import Ask, Calibration, Measured, OpenLoopTrial
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.workbench.loadtest.observed_run import perform
from serve.workbench.loadtest.plan import Arrivals, Closed, Lane, LoadPlan, RateShape
from serve.workbench.loadtest.reports.bottleneck import own_limit
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import latencies, total
from serve.workbench.tuning.execution_counts import Statistics

_WARM_UP = 0.5  # seconds
_TIMEOUT = 20.0
_CALLS = 100  # fewer have no p99
_LONGER = 6  # times a short measurement, at most
_LATENESS = 40  # a call that takes so many times the objective's limit is given up


class Stopped(Exception):
    """Somebody has ended the tuning."""


@dataclass(frozen=True, slots=True)
class MeasuredWorkload:
    """What calls there are: a lane for each size, with its share; `rows` of a call on average.

    `trace`: starts in seconds from the first, empty for Poisson arrivals.
    """

    lanes: tuple[Lane, ...]
    rows: float = 1.0
    trace: tuple[float, ...] = ()

    def at(self, rate: float, seconds: float) -> Arrivals:
        """Arrivals at a rate; a trace is told again from its begin where it is too short."""
        if len(self.trace) < 2 or self.trace[-1] <= 0:
            return Arrivals(rate)
        gap = self.trace[-1] / (len(self.trace) - 1)
        period = self.trace[-1] + gap  # the last start has a distance to the next first, too
        speed = rate * gap
        rounds = math.ceil(seconds * speed / period) + 1
        times = ((each + turn * period) / speed for turn in range(rounds) for each in self.trace)
        return Arrivals(
            rate, RateShape.TRACE, times=tuple(each for each in times if each < seconds)
        )


@dataclass(frozen=True, slots=True)
class MeasurementResult:
    """A measurement with what has to be said of it: `doubt` names a generator that was the limit.

    `repeated`: it was made twice, since the first one was void.
    """

    measured: Measured
    doubt: str = ""
    repeated: bool = False


Perform = Callable[[LoadPlan, Statistics], Awaitable[LoadRun]]


class Measuring:
    """Makes measurements of whatever setup is loaded. `unit`: seconds of a short one.

    `stop` ends the one under way: `Stopped` is raised then.
    """

    def __init__(
        self,
        workload: MeasuredWorkload,
        objective: Objective,
        statistics: Statistics,
        *,
        unit: float,
        stop: asyncio.Event,
        make: Perform | None = None,
    ) -> None:
        self._workload = workload
        self._objective = objective
        self._statistics = statistics
        self._unit = unit
        self._stop = stop
        self._make = make or self._perform
        self._seed = 0

    def __repr__(self) -> str:
        return f"<Measuring {self._objective} unit={self._unit:g} s made={self._seed}>"

    def seconds(self, ask: Ask) -> float:
        """How long it takes, with its warm-up."""
        return self._length(ask) + _WARM_UP

    async def measure(self, ask: Ask) -> MeasurementResult:
        """One measurement."""
        run, made = await self._once(ask)
        doubt = own_limit(run) if isinstance(ask, OpenLoopTrial) else ""
        if not doubt:
            return MeasurementResult(made)
        run, made = await self._once(ask)
        return MeasurementResult(made, own_limit(run), repeated=True)

    async def _once(self, ask: Ask) -> tuple[LoadRun, Measured]:
        if self._stop.is_set():
            raise Stopped
        run = await self._make(self._plan(ask), self._statistics)
        if self._stop.is_set():
            raise Stopped
        return run, self._measured(run)

    def _plan(self, ask: Ask) -> LoadPlan:
        self._seed += 1
        seconds = self._length(ask)
        plan = LoadPlan(
            self._workload.lanes,
            seconds,
            timeout=min(_TIMEOUT, max(1.0, _LATENESS * self._objective.limit)),
            warm_up=_WARM_UP,
            seed=self._seed,
        )
        if isinstance(ask, Calibration):
            return replace(plan, closed=Closed(ask.callers))
        return replace(plan, arrivals=self._workload.at(ask.rate, seconds))

    def _length(self, ask: Ask) -> float:
        """Whole seconds, over which rates are; of a slow trial, as many as make enough calls."""
        seconds = ask.weight * self._unit
        if isinstance(ask, OpenLoopTrial) and ask.rate > 0:
            seconds = max(seconds, min(_CALLS / ask.rate, _LONGER * self._unit))
        return float(max(1, round(seconds)))

    async def _perform(self, plan: LoadPlan, statistics: Statistics) -> LoadRun:
        return await perform(
            plan, label="tuning", observer=statistics, tell=lambda _: None, stop=self._stop
        )

    def _measured(self, run: LoadRun) -> Measured:
        row, counted = total(run), self._statistics.rises
        return Measured(
            seconds=run.seconds,
            rate=row.rate,
            latency=latencies(run).quantile(self._objective.quantile / 100),
            p50=row.latency.p50,
            p99=row.latency.p99,
            errors=row.failed,
            points=counted.points,
            queue=counted.queue,
        )


def mean_rows(mix: Sequence[tuple[int, float]]) -> float:
    """Rows of a call on average, of sizes and their shares."""
    return sum(rows * share for rows, share in mix) / sum(share for _, share in mix)


def parse_rows(text: str) -> tuple[tuple[int, float], ...]:
    """Read `1`, or sizes with their shares: `1:80,8:20`. `Invalid` for anything else."""
    found = []
    for part in text.split(","):
        size, colon, share = part.strip().partition(":")
        try:
            rows, weight = int(size), float(share) if colon else 1.0
        except ValueError:
            rows, weight = 0, 0.0
        if rows < 1 or not (0 < weight < math.inf):
            raise Invalid(
                f"'{text}' is not a number of rows per call",
                why="it has to be 1 or more, or several sizes with their shares",
                try_this="use --rows 1:80,8:20",
            )
        found.append((rows, weight))
    return tuple(found)
