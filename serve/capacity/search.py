"""The search for the best setup: few measurements, each where it tells most.

    calibration   a few loops tell the service time; the whole grid is predicted with it
    rung 1        the most promising setups, no two too much alike, get one trial each
    rung 2, 3     the best half of what is believed then, measured or not, gets two, then three
    final         the best gets trials until what passed and what failed are close
    confirmation  the rate that passed is tried once more, for longer; if it fails, a step lower

A trial is made at the median of what is believed of the setup's limit, where its outcome says most.
What a trial says of one setup also moves the belief of those that are like it (`knowledge.py`).

    grid = candidates(64, instances=2, objective=objective)
    search = Halving(grid, objective)
    while (ask := search.next()) is not None:
        search.told(await measure(ask))        # or search.failed("it did not load: …")
        save(search.to_json())
    best = search.best()

The grid: all setups worth thinking of.

Preferred sizes are left out. Triton's own manual says that most models gain nothing by them: they
are for engines with a profile per size, and calls that miss the size wait, or run in smaller
batches than they could (`batch_formation.py`).

Which setups a rung has, and how the last one is brought to an end.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from serve.capacity import calibration, search_state
from serve.capacity.knowledge import CONFIRMING, Knowledge
from serve.capacity.measurements import Ask, Best, Measured, OpenLoopTrial, SetupStanding
from serve.capacity.prediction import PredictedWorkload, Prediction, predict
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.core.objectives import Objective

# --- rungs ----------------------------------------------------------------------------------------


TRIALS = (1, 2, 3)
"""Of each setup in a rung."""
WEIGHTS = (1.0, 1.0, 1.5)
"""Of a trial in a rung."""
FINAL = 8
"""Measurements that are kept for the final."""
RESERVE = 4
"""Measurements that no rung may use."""

_LARGEST = 10  # setups in the first rung
_CLOSE = 1.05  # what passed and what failed are close
_STEP = 1.03
_BETTER = 1.03  # another setup takes the finalist's place from here on
_ALIKE = 0.03  # by how much a setup counts less for each like it that is already in the rung
_CAREFUL = 0.25  # the quantile of the belief to go to where nothing has passed yet
_DEEPER = 1.2  # and the first step down from there; the second is twice as deep, and so on
_FINAL_STEP = "final"


def rung_sizes(room: int) -> tuple[int, int, int]:
    """The setups of each rung, where so many measurements are left for rungs and final."""
    first = min(max(2, (room - FINAL) * 4 // 11), _LARGEST)
    return first, max(2, first // 2), 2


def promising(known: Knowledge, size: int, trials: int) -> list[BatchSetup]:
    """The setups of the next rung, each `trials` times; in the order of the grid: few reloads."""
    left = {each: known.belief(each).rate for each in known.ranked()}
    chosen: list[BatchSetup] = []
    while left and len(chosen) < size:
        best = max(left, key=lambda each: left[each] * _worth(each, chosen))
        chosen.append(best)
        del left[best]
    order = {each: place for place, each in enumerate(known.predictions)}
    chosen.sort(key=lambda each: order[each])
    return [each for each in chosen for _ in range(trials)]


def finalist(known: Knowledge, present: BatchSetup | None) -> BatchSetup:
    """The setup that is believed to be best; the present one until another is clearly better."""
    first = known.ranked()[0]
    if present is None or present in known.out:
        return first
    is_clear = known.belief(first).rate > _BETTER * known.belief(present).rate
    return first if is_clear else present


def final(known: Knowledge, setup: BatchSetup, left: int) -> OpenLoopTrial | None:
    """The next trial of the finalist, where so many measurements are left; None when it is done."""
    if known.is_confirmed(setup):
        return None
    passed, failed, belief = known.passed(setup), known.failed(setup), known.belief(setup)
    if not passed:
        rate = min(belief.quantile(_CAREFUL), failed / _STEP) / _DEEPER ** (2 ** _missed(known) - 1)
        return OpenLoopTrial(setup, to_four_figures(rate), 1.5, _FINAL_STEP)
    if failed <= passed * _CLOSE or left <= 2:
        return OpenLoopTrial(setup, passed, 2.0, CONFIRMING)
    rate = min(max(belief.rate, passed * _STEP), failed / (1 + (_STEP - 1) / 2))
    return OpenLoopTrial(setup, to_four_figures(rate), 1.5, _FINAL_STEP)


def to_four_figures(rate: float) -> float:
    """For people."""
    return float(f"{rate:.4g}")


def _missed(known: Knowledge) -> int:
    """How many trials of the final have missed while nothing has passed: each goes further down."""
    if any(map(known.passed, known.predictions)):
        return 0
    tried = (trial for each in known.predictions for trial, _ in known.trials(each))
    return sum(trial.step == _FINAL_STEP for trial in tried)


def _worth(setup: BatchSetup, chosen: list[BatchSetup]) -> float:
    """Less than 1 where like setups, which differ in their delay at most, are chosen already."""
    return 1 - _ALIKE * sum(
        (setup.instances, setup.max_batch_size, setup.batches)
        == (each.instances, each.max_batch_size, each.batches)
        for each in chosen
    )


# --- the grid -------------------------------------------------------------------------------------


_DELAYS = (0.0, 0.02, 0.05, 0.15)  # of the objective's limit
_FINEST = 1e-4  # seconds; shorter delays are no longer than the batcher's own way


def candidates(
    largest: int, *, instances: int, objective: Objective, delays: Sequence[float] | None = None
) -> tuple[BatchSetup, ...]:
    """All setups worth thinking of, the simplest first.

    `largest`: the highest max_batch_size, in rows; 0 for a model that takes no batches.
    `instances`: the most. `delays`: seconds; without them some shares of the objective's limit.
    """
    if largest < 0 or instances < 1:
        raise Invalid(
            f"there are no configurations with up to {largest} rows and {instances} instances",
            why="required: 0 or more rows, and at least one instance",
        )
    if delays is None:
        delays = [_plain(share * objective.limit) for share in _DELAYS]
    waits = sorted({each for each in delays if each == 0 or each >= _FINEST})
    found = []
    for count in range(1, instances + 1):
        found.append(BatchSetup(largest, count, batches=False))
        for size in _sizes(largest):
            found += [BatchSetup(size, count, delay=delay) for delay in waits]
    return tuple(found)


def _sizes(largest: int) -> list[int]:
    """2, 4, 8, … and the largest."""
    powers = [2**power for power in range(1, 20) if 2**power < largest]
    return [*powers, largest] if largest > 1 else []


def _plain(seconds: float) -> float:
    """Two figures of microseconds, for people."""
    return float(f"{seconds * 1e6:.2g}") / 1e6


# --- the search for the best setup ----------------------------------------------------------------


__all__ = ["Halving", "candidates"]
_MOST, _LEAST = 42, 18  # measurements, where nothing else is said


class Halving:
    """Successive halving over setups: by calculation first, then by measurement.

    `rows`: of each call of the workload. `interarrivals`: its spacing, where it is no Poisson
    process. `most`: measurements at most, calibrations included; without it at most one per setup,
    and 40: to look for the highest rate of every setup takes ten times as many, or more.
    """

    def __init__(
        self,
        grid: Sequence[BatchSetup],
        objective: Objective,
        *,
        rows: int = 1,
        interarrivals: Sequence[float] = (),
        most: int | None = None,
    ) -> None:
        self._grid = tuple(each for each in grid if rows <= max(1, each.max_batch_size))
        if not self._grid:
            raise Invalid(
                f"no configuration accepts calls of {rows} rows",
                why="the largest max_batch_size is smaller",
                try_this=f"use --max-batch-size {rows} or more",
            )
        self._objective = objective
        self._work = PredictedWorkload(rows, interarrivals=tuple(interarrivals))
        self._most = most or min(_MOST, max(_LEAST, len(self._grid)))
        self._calibrations = calibration.calibrations(self._grid, rows)
        pressures = len({each.setup for each in self._calibrations})  # at most
        self._calibrating = len(self._calibrations) + pressures
        self._sizes = rung_sizes(self._most - self._calibrating)
        self._history: list[tuple[Ask, Measured | str]] = []
        self._knowledge: Knowledge | None = None
        self._given: tuple[Prediction, ...] = ()  # predictions out of a state
        self._ask: Ask | None = None
        self._queue: deque[BatchSetup] = deque()  # what is left of the rung
        self._rung = 0
        self._finalist: BatchSetup | None = None

    def __repr__(self) -> str:
        return (
            f"<Halving of {len(self._grid)} setups, {self.measurements} of {self._most} measured>"
        )

    def next(self) -> Ask | None:
        """What to measure now; the same until `told` or `failed`. None when the search is over."""
        if self._ask is None and self.measurements < self._most:
            self._ask = self._coming()
        return self._ask

    def told(self, measured: Measured) -> None:
        """Learn what the present ask came to."""
        ask = self._take(measured)
        if isinstance(ask, OpenLoopTrial) and self._knowledge:
            self._knowledge.learn(ask, measured)
            if self._queue:
                self._queue.popleft()

    def failed(self, why: str) -> None:
        """The present ask could not be measured (the setup did not load): its setup is out."""
        ask = self._take(why)
        if self._knowledge:
            self._knowledge.out[ask.setup] = why
            self._queue = deque(each for each in self._queue if each != ask.setup)

    def best(self) -> Best | None:
        """The best so far; None while nothing has passed."""
        known = self._knowledge
        if known is None:
            return None
        found = self._finalist
        if found is None or not known.passed(found):
            found = max(self._grid, key=known.passed)
        at_passed = known.at_passed(found)
        if at_passed is None or not known.passed(found):
            return None
        return Best(
            setup=found,
            rate=known.passed(found),
            p99=at_passed.p99,
            rows_per_execution=at_passed.rows_per_execution,
            is_confirmed=known.is_confirmed(found),
            measurements=self.measurements,
        )

    @property
    def service(self) -> ServiceTime | None:
        """What calibration found; None before."""
        return self._knowledge.service if self._knowledge else None

    @property
    def overhead(self) -> float:
        """Seconds that a call takes besides its queue and its execution; 0 before calibration."""
        return self._knowledge.overhead if self._knowledge else 0.0

    @property
    def measurements(self) -> int:
        """How many there were."""
        return len(self._history)

    @property
    def coming(self) -> int:
        """How many are still to come, about: for a progress bar."""
        if self._ask is None and self.next() is None:
            return 0
        rungs = zip(self._sizes[self._rung :], TRIALS[self._rung :], strict=True)
        left = 0 if self._knowledge else max(0, self._calibrating - self.measurements)
        planned = left + len(self._queue) + sum(size * each for size, each in rungs)
        return max(1, min(self._most - self.measurements, planned + FINAL // 2))

    @property
    def standings(self) -> tuple[SetupStanding, ...]:
        """All setups of the grid, by estimate, the best first. Empty before calibration."""
        if self._knowledge is None:
            return ()
        found = [self._knowledge.standing(each) for each in self._grid]
        return tuple(sorted(found, key=lambda each: -each.estimate))

    def history(self) -> tuple[tuple[Ask, Measured | str], ...]:
        """All measurements in order; text says why there is none."""
        return tuple(self._history)

    def to_json(self) -> Mapping[str, Any]:
        """All of the state; it goes through json.dumps."""
        known = self._knowledge.predictions.values() if self._knowledge else ()
        return {
            "format": search_state.FORMAT,
            "objective": str(self._objective),
            "rows": self._work.rows,
            "interarrivals": list(self._work.interarrivals),
            "most": self._most,
            "grid": [search_state.setup_to_json(each) for each in self._grid],
            "predictions": [search_state.prediction_to_json(each) for each in known],
            "history": [
                {"ask": search_state.ask_to_json(ask), "told": search_state.told_to_json(told)}
                for ask, told in self._history
            ],
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "Halving":
        """Go on where `to_json` left off. `Invalid` for a state that was not written by it."""
        try:
            if state["format"] != search_state.FORMAT:
                raise ValueError("the state has the format of another version")
            grid = [search_state.setup_from_json(each) for each in state["grid"]]
            search = cls(
                grid,
                Objective.parse(state["objective"]),
                rows=int(state["rows"]),
                interarrivals=[float(each) for each in state["interarrivals"]],
                most=int(state["most"]),
            )
            search._given = tuple(
                search_state.prediction_from_json(setup, each)
                for setup, each in zip(grid, state["predictions"], strict=False)
            )
            for each in state["history"]:
                search._replay(
                    search_state.ask_from_json(each["ask"]),
                    search_state.told_from_json(each["told"]),
                )
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid("the state of the search is damaged", why=str(error)) from error
        return search

    def _replay(self, ask: Ask, told: Measured | str) -> None:
        """What was asked then is asked again; the state has the exact numbers."""
        self.next()
        self._ask = ask
        if isinstance(told, str):
            self.failed(told)
        else:
            self.told(told)

    def _take(self, told: Measured | str) -> Ask:
        ask, self._ask = self._ask, None
        if ask is None:
            raise RuntimeError("nothing was asked")
        self._history.append((ask, told))
        return ask

    def _coming(self) -> Ask | None:
        if self._knowledge is None:
            following = calibration.coming(self._calibrations, self._history)
            if following is not None:
                return following
            self._knowledge = self._known()
        known = self._knowledge
        if known is None or not known.ranked():
            return None
        left = self._most - self.measurements
        if left <= RESERVE:
            self._queue.clear()
            self._rung = len(TRIALS)
        while not self._queue and self._rung < len(TRIALS):
            self._queue.extend(promising(known, self._sizes[self._rung], TRIALS[self._rung]))
            self._rung += 1
        if self._queue:
            setup, number = self._queue[0], self._rung
            rate = to_four_figures(known.belief(setup).rate)
            return OpenLoopTrial(setup, rate, WEIGHTS[number - 1], f"rung {number}")
        self._finalist = finalist(known, self._finalist)
        return final(known, self._finalist, left)

    def _known(self) -> Knowledge | None:
        """What the calibrations tell; None where they tell too little."""
        told = [
            (ask, measured) for ask, measured in self._history if isinstance(measured, Measured)
        ]
        found = calibration.read(told, self._work.rows)
        if found is None:
            return None
        service, overhead = found
        work = PredictedWorkload(self._work.rows, overhead, self._work.interarrivals)
        predictions = self._given or tuple(
            predict(
                each,
                service,
                self._objective,
                overhead=overhead,
                rows=work.rows,
                interarrivals=work.interarrivals,
            )
            for each in self._grid
        )
        return Knowledge(self._objective, service, work, predictions)
