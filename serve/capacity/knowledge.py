"""What a search knows of its setups: predictions, trials, and what to believe because of both.

What is believed of a setup's limit: the highest rate at which it meets the objective.

Before any trial the belief is a bell around the prediction. A trial's latency is compared with the
one that the simulation tells for that rate, if the limit were here or there: where the curve is
steep the trial says much, where it is flat next to nothing. Besides, who passed has its limit above
the rate, and who failed below, but for bad luck. Limits are believed on their logarithm.

Setups are alike, and so are the errors of their predictions: what was measured above or below the
prediction of one moves the others, the more the more they are alike.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from serve.capacity.batcher import Floats, saturation
from serve.capacity.measurements import Measured, OpenLoopTrial, SetupStanding
from serve.capacity.prediction import PredictedWorkload, Prediction
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.objectives import Objective

# --- what is believed of a setup's limit ----------------------------------------------------------


_SPAN = np.linspace(-1.5, 1.5, 301)  # of log(limit ÷ prediction)
_ROUGH, _FINE = 0.3, 0.06  # how far predictions are off: before any trial, and between like setups
_NOISE = 0.25  # of the logarithm of a measured quantile
_THROUGHPUT_NOISE = 0.1  # of the logarithm of what was worked off
_CONGESTED = 0.4  # the same towards more: who is swamped may get less done than who is just busy
_EDGE = 0.02  # of the logarithm of a limit, which moves from trial to trial
_OUTLIER = 0.02  # how often a trial tells nothing
_HICCUP = 0.15  # how often one misses although nothing is wrong but the machine, which paused
_LOWEST, _HIGHEST = -3.0, 1.0  # of log(latency ÷ limit); beyond them it tells no more

SHARES = (0.4, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.3)
"""Rates, as shares of the predicted limit, where the curve of the latency is computed."""


@dataclass(frozen=True, slots=True)
class SeenTrial:
    """A trial: its rate ÷ the prediction, and log(latency ÷ limit).

    `worked_off`: where it did not keep up, what it did get done ÷ the predicted saturation, which
    tells more than any latency; else 0.
    """

    share: float
    excess: float
    worked_off: float = 0.0


@dataclass(frozen=True, slots=True)
class Belief:
    """How probable each limit is; `weights` belong to log(limit ÷ prediction) from -1.5 to 1.5."""

    predicted: float
    weights: Floats

    @property
    def rate(self) -> float:
        """The limit's median, in calls per second."""
        return self.quantile(0.5)

    def quantile(self, q: float) -> float:
        """The limit that is higher with probability 1 - q."""
        sums = np.cumsum(self.weights)
        return self.predicted * math.exp(float(np.interp(q * sums[-1], sums, _SPAN)))


def believed(
    predicted: float, shift: float, spread: float, curve: Floats, seen: Iterable[SeenTrial]
) -> Belief:
    """The belief after these trials.

    `shift`, `spread`: of the bell before them. `curve`: log(latency ÷ limit) at `SHARES`.
    """
    logs = -0.5 * ((_SPAN - shift) / spread) ** 2
    shares = np.log(np.array(SHARES))
    for trial in seen:
        told = min(max(trial.excess, _LOWEST), _HIGHEST)
        here = np.interp(math.log(trial.share) - _SPAN, shares, curve)
        here = np.clip(here, _LOWEST, _HIGHEST)
        off = (told - here) / _NOISE
        if trial.worked_off:
            more = _SPAN - math.log(trial.worked_off)
            off = more / np.where(more > 0, _CONGESTED, _THROUGHPUT_NOISE)
        bell = np.exp(-0.5 * off**2)
        beyond = (_SPAN - math.log(trial.share)) * (1 if trial.excess <= 0 else -1)
        fits = 1 / (1 + np.exp(-beyond / _EDGE))  # who passed has its limit above, who failed below
        luck = _OUTLIER if trial.excess <= 0 or trial.worked_off else _HICCUP
        logs = logs + np.log((1 - luck) * bell + luck) + np.log(fits + luck)
    weights = np.exp(logs - logs.max())
    return Belief(predicted, weights / weights.sum())


def shift_of(setup: BatchSetup, errors: Mapping[BatchSetup, float]) -> tuple[float, float]:
    """How far its prediction is probably off, as a logarithm, and how sure that is.

    `errors`: log(limit ÷ prediction) of the setups that have had trials.
    """
    alike = {each: _likeness(setup, each) for each in errors if each != setup}
    total = sum(alike.values())
    shift = sum(alike[each] * errors[each] for each in alike) / (total + 0.3)
    return shift, math.hypot(_ROUGH / math.sqrt(1 + 4 * total), _FINE)


def _likeness(one: BatchSetup, other: BatchSetup) -> float:
    apart = 0.5 * abs(math.log2(max(1, one.max_batch_size) / max(1, other.max_batch_size)))
    apart += 1.0 * abs(one.instances - other.instances)
    apart += 0.5 * ((one.delay > 0) != (other.delay > 0)) + 1.0 * (one.batches != other.batches)
    return math.exp(-apart)


# --- what a search knows of its setups ------------------------------------------------------------


_TOO_SLOW = 9.0  # log(latency ÷ limit) where calls failed or piled up
_LEAST = 1e-9  # seconds
CONFIRMING = "confirmation"


class Knowledge:
    """Predictions and trials of all setups of a grid, in the order of the grid."""

    def __init__(
        self,
        objective: Objective,
        service: ServiceTime,
        work: PredictedWorkload,
        predictions: Iterable[Prediction],
    ) -> None:
        self._objective = objective
        self._work = work
        self.service = service
        self.predictions = {each.setup: each for each in predictions}
        self.out = {each.setup: each.why for each in self.predictions.values() if not each.rate}
        self._trials: dict[BatchSetup, list[tuple[OpenLoopTrial, Measured]]] = {}
        self._curves: dict[BatchSetup, Floats] = {}
        self._errors: dict[BatchSetup, float] = {}  # log(limit ÷ prediction), of what had a trial

    def __repr__(self) -> str:
        return f"<Knowledge of {len(self.predictions)} setups, {len(self._trials)} tried>"

    @property
    def overhead(self) -> float:
        """Seconds that a call takes besides its queue and its execution."""
        return self._work.overhead

    def learn(self, trial: OpenLoopTrial, measured: Measured) -> None:
        """Take a trial in."""
        setup = trial.setup
        self._trials.setdefault(setup, []).append((trial, measured))
        alone = believed(
            self.predictions[setup].rate, 0.0, 0.3, self._curve(setup), self._seen(setup)
        )
        self._errors[setup] = math.log(alone.rate / alone.predicted)

    def trials(self, setup: BatchSetup) -> tuple[tuple[OpenLoopTrial, Measured], ...]:
        """Those of one setup, in order."""
        return tuple(self._trials.get(setup, ()))

    def belief(self, setup: BatchSetup) -> Belief:
        """What is believed of its limit; not for a setup whose prediction is 0."""
        shift, spread = shift_of(setup, self._errors)
        curve = self._curve(setup) if setup in self._trials else np.zeros(len(SHARES))
        rate = self.predictions[setup].rate
        return believed(rate, shift, spread, curve, self._seen(setup))

    def ranked(self) -> list[BatchSetup]:
        """What is not out, by the limit that is believed, the highest first."""
        rates = {each: self.belief(each).rate for each in self.predictions if each not in self.out}
        return sorted(rates, key=lambda each: -rates[each])

    def passed(self, setup: BatchSetup) -> float:
        """The highest rate that passed and never failed, if more passed there than failed below.

        0 without one. A confirmation that failed rules its rate out, and all above it.
        """
        tried = self._outcomes(setup)
        failed = [trial for trial, passes in tried if not passes]
        passes = [trial.rate for trial, passes in tried if passes]
        ceiling = min((each.rate for each in failed if each.step == CONFIRMING), default=math.inf)
        for rate in sorted(set(passes) - {each.rate for each in failed}, reverse=True):
            against = sum(each.rate <= rate for each in failed)
            if rate < ceiling and sum(each >= rate for each in passes) > against:
                return rate
        return 0.0

    def failed(self, setup: BatchSetup) -> float:
        """The lowest rate above `passed` that failed; `inf` without one."""
        above = self.passed(setup)
        tried = self._outcomes(setup)
        rates = (trial.rate for trial, passes in tried if not passes and trial.rate > above)
        return min(rates, default=math.inf)

    def is_confirmed(self, setup: BatchSetup) -> bool:
        """Whether `passed` has passed a confirmation."""
        rate = self.passed(setup)
        return any(
            trial.rate == rate and trial.step == CONFIRMING for trial, _ in self.trials(setup)
        )

    def at_passed(self, setup: BatchSetup) -> Measured | None:
        """The last measurement at the rate that passed."""
        rate = self.passed(setup)
        found = [measured for trial, measured in self.trials(setup) if trial.rate == rate]
        return found[-1] if found else None

    def standing(self, setup: BatchSetup) -> SetupStanding:
        """All of it, for a report."""
        prediction, at_passed = self.predictions[setup], self.at_passed(setup)
        return SetupStanding(
            setup=setup,
            predicted=prediction.rate,
            predicted_p99=prediction.p99,
            estimate=self.belief(setup).rate if prediction.rate else 0.0,
            passed=self.passed(setup),
            failed=self.failed(setup),
            p99=at_passed.p99 if at_passed else math.nan,
            trials=len(self.trials(setup)),
            why_out=self.out.get(setup, ""),
        )

    def _outcomes(self, setup: BatchSetup) -> list[tuple[OpenLoopTrial, bool]]:
        return [
            (trial, measured.passes(trial.rate, self._objective))
            for trial, measured in self.trials(setup)
        ]

    def _seen(self, setup: BatchSetup) -> list[SeenTrial]:
        predicted, limit = self.predictions[setup].rate, self._objective.limit
        most = saturation(setup, self.service, self._work.rows)
        found = []
        for trial, measured in self.trials(setup):
            excess = math.log(max(measured.latency, _LEAST) / limit)
            worked_off = 0.0
            if measured.errors or not measured.keeps_up(trial.rate):
                excess = _TOO_SLOW
            if measured.rate and not measured.keeps_up(trial.rate):
                worked_off = measured.rate / most
            found.append(SeenTrial(trial.rate / predicted, excess, worked_off))
        return found

    def _curve(self, setup: BatchSetup) -> Floats:
        """log(latency ÷ limit) at the shares of the predicted limit; never falling."""
        if setup not in self._curves:
            rate, objective = self.predictions[setup].rate, self._objective
            seen = (self._work.at(share * rate, setup, self.service) for share in SHARES)
            latencies = np.array([each.quantile(objective.quantile) for each in seen])
            excess: Floats = np.log(latencies / objective.limit)
            self._curves[setup] = np.maximum.accumulate(excess)
        return self._curves[setup]
