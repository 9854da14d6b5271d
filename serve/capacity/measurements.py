"""What the search for a setup asks to be measured, and what it is told.

    Calibration   a closed loop: how long an execution takes, how much instances slow each other
    Pressure      more calls than can be answered: the same, while calls come whenever they like
    Trial         an open loop at a rate: does the setup meet the objective there?
    Measured      the answer to both

Who measures does no more than this; a state is written between any two measurements:

    while (ask := search.next()) is not None:
        search.told(await measure(ask))        # or search.failed("it did not load: …")
        save(search.to_json())
    best = search.best()
"""

import math
from dataclasses import dataclass

from serve.capacity.service import ExecutionPoint
from serve.capacity.setup import BatchSetup
from serve.core.objectives import Objective

_KEPT_UP = 0.97  # of the rate; below it the calls pile up somewhere
_LUCK = 3.0  # standard deviations of the number of calls that a Poisson process brings


@dataclass(frozen=True, slots=True)
class Calibration:
    """A closed loop: `callers` callers, each sends its next call when it has its answer.

    The calls are those of a trial (the same samples). `weight`: for how many units of time; a unit
    is what the caller of the search thinks a short measurement is (a few seconds).
    """

    setup: BatchSetup
    callers: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """An open loop at a `rate` that is too high, for `weight` units of time."""

    setup: BatchSetup
    rate: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class OpenLoopTrial:
    """An open loop: `rate` calls per second, by a Poisson process or the workload's own spacing.

    `weight`: for how many units of time. `step`: for people: `rung 1`, `final`, `confirmation`.
    """

    setup: BatchSetup
    rate: float
    weight: float = 1.0
    step: str = ""


Ask = Calibration | Pressure | OpenLoopTrial


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurement came to, without its warm-up.

    `seconds`: how long it was measured. `rate`: right answers per second. `latency`: at the
    objective's quantile, in seconds, from a call's intended start; `p50` and `p99` likewise.
    `errors`: calls without a right answer. `points`: the rises of Triton's batch_stats over the
    same time: for each size, its executions and their mean time (`compute_input` + `compute_infer`
    + `compute_output`). `queue`: the mean time in Triton's queue; 0 where it is not known.
    """

    seconds: float
    rate: float
    latency: float
    p50: float
    p99: float
    errors: int = 0
    points: tuple[ExecutionPoint, ...] = ()
    queue: float = 0.0

    @property
    def executions(self) -> float:
        """How many there were."""
        return sum(point.executions for point in self.points)

    @property
    def rows_per_execution(self) -> float:
        """On average; 0 where nothing ran."""
        rows = sum(point.rows * point.executions for point in self.points)
        return rows / self.executions if self.executions else 0.0

    @property
    def mean(self) -> float:
        """Seconds of an execution, on average; 0 where nothing ran."""
        spent = sum(point.seconds * point.executions for point in self.points)
        return spent / self.executions if self.executions else 0.0

    def keeps_up(self, rate: float) -> bool:
        """Whether as much was answered as comes at this rate, give or take a Poisson's luck."""
        luck = _LUCK * math.sqrt(rate / self.seconds) if self.seconds > 0 else math.inf
        return self.rate >= _KEPT_UP * rate - luck

    def passes(self, rate: float, objective: Objective) -> bool:
        """Whether the objective is met at this rate, without errors and without a growing queue."""
        return self.errors == 0 and self.latency <= objective.limit and self.keeps_up(rate)


@dataclass(frozen=True, slots=True)
class SetupStanding:
    """What is known of one setup.

    `predicted`: calls/s under the objective, by calculation alone. `predicted_p99`: there, in
    seconds. `estimate`: calls/s, by calculation and measurement together. `passed` and `failed`:
    the highest rate that passed, and the lowest above it that failed (0 and `inf` without).
    `p99`: as measured at `passed`, in seconds. `trials`: how many there were. `why_out`: why the
    search has given it up, empty while it has not.
    """

    setup: BatchSetup
    predicted: float
    predicted_p99: float
    estimate: float
    passed: float
    failed: float
    p99: float
    trials: int
    why_out: str = ""


@dataclass(frozen=True, slots=True)
class Best:
    """The setup that the search came to; `rate` passed in a trial, and again if `is_confirmed`.

    `p99` and `rows_per_execution`: as measured at that rate.
    """

    setup: BatchSetup
    rate: float
    p99: float
    rows_per_execution: float
    is_confirmed: bool
    measurements: int
    notes: tuple[str, ...] = ()
