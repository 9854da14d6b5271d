"""What is believed of a setup's limit: the highest rate at which it meets the objective.

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

from serve.capacity.batcher import Floats
from serve.capacity.setup import BatchSetup

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
