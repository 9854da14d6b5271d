"""Loads: when calls come, drawn from a seed; each is the same for everybody who is compared.

| load     | calls per second over the time                                                    |
|----------|-----------------------------------------------------------------------------------|
| steady   | the mean                                                                          |
| diurnal  | a day in the whole time: its peak is nine times its trough                        |
| ramp     | in a line, from a fifth of the mean to nine fifths                                |
| step     | four times as many from the middle on                                             |
| spikes   | five times as many, for two minutes in every twelve                               |
| mmpp     | two states of four to one, each for five minutes on average                       |
| on-off   | the same, but nothing at all in one of them                                       |
| gamma-1, | a steady rate, whose gaps have a coefficient of variation of 1, 2 and 4           |
| -2, -4   |                                                                                   |

All have the same mean, so what they cost can be compared.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_SPIKE, _PERIOD = 120.0, 720.0  # seconds
_STAY = 300.0  # mean seconds in a state
_GRAIN = 1.0  # seconds for which a rate holds


def arrivals(name: str, mean: float, seconds: float, seed: int) -> Floats:
    """When calls come, ascending, in seconds from 0; `KeyError` for a load that is not known."""
    rng = np.random.default_rng((seed, sorted(LOADS).index(name)))
    return LOADS[name](mean, seconds, rng)


def _poisson(shape: Floats, mean: float, seconds: float, rng: np.random.Generator) -> Floats:
    """By a Poisson process whose rate goes with `shape`, one value for each grain of time."""
    rates = shape * (mean / shape.mean())
    counts = rng.poisson(rates * _GRAIN)
    starts = np.repeat(np.arange(len(rates)) * _GRAIN, counts)
    return _within(np.sort(starts + rng.uniform(0.0, _GRAIN, len(starts))), seconds)


def _within(times: Floats, seconds: float) -> Floats:
    found: Floats = times[times < seconds]
    return found


def _grains(seconds: float) -> Floats:
    return np.arange(0.0, seconds, _GRAIN)


def _steady(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
    return _poisson(np.ones_like(_grains(seconds)), mean, seconds, rng)


def _diurnal(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
    day = 5.0 - 4.0 * np.cos(2 * np.pi * _grains(seconds) / seconds)
    return _poisson(day, mean, seconds, rng)


def _ramp(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
    return _poisson(1.0 + 8.0 * _grains(seconds) / seconds, mean, seconds, rng)


def _step(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
    return _poisson(np.where(_grains(seconds) < seconds / 2, 1.0, 4.0), mean, seconds, rng)


def _spikes(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
    within = _grains(seconds) % _PERIOD
    return _poisson(np.where(within < _PERIOD - _SPIKE, 1.0, 5.0), mean, seconds, rng)


def _switching(low: float, high: float) -> Callable[[float, float, np.random.Generator], Floats]:
    def load(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
        count, is_high = len(_grains(seconds)), bool(rng.integers(2))
        shape: list[float] = []
        while len(shape) < count:
            stay = max(1, round(rng.exponential(_STAY) / _GRAIN))
            shape += [high if is_high else low] * stay
            is_high = not is_high
        found = np.array(shape[:count])
        if not found.any():  # off all the time says nothing
            found[len(found) // 2 :] = high
        return _poisson(found, mean, seconds, rng)

    return load


def _gamma(variation: float) -> Callable[[float, float, np.random.Generator], Floats]:
    def load(mean: float, seconds: float, rng: np.random.Generator) -> Floats:
        shape = 1.0 / variation**2
        count = int(mean * seconds * 1.5 + 100 * variation**2)
        return _within(np.cumsum(rng.gamma(shape, 1.0 / (mean * shape), count)), seconds)

    return load


LOADS: Mapping[str, Callable[[float, float, np.random.Generator], Floats]] = {
    "steady": _steady,
    "diurnal": _diurnal,
    "ramp": _ramp,
    "step": _step,
    "spikes": _spikes,
    "mmpp": _switching(1.0, 4.0),
    "on-off": _switching(0.0, 1.0),
    "gamma-1": _gamma(1.0),
    "gamma-2": _gamma(2.0),
    "gamma-4": _gamma(4.0),
}


def repeated(trace: Floats, mean: float, *, seed: int = 0) -> Floats:
    """A trace at another mean rate, its shape kept: each call becomes several, or some are left.

    `trace`: ascending seconds. The same trace, rate and seed give the same calls.
    """
    if len(trace) < 2:
        return trace
    factor = mean * (trace[-1] - trace[0]) / (len(trace) - 1)
    rng = np.random.default_rng((seed, len(trace)))
    counts = np.floor(factor + rng.uniform(size=len(trace))).astype(np.int64)
    gaps = np.diff(trace, append=trace[-1])
    starts, widths = np.repeat(trace, counts), np.repeat(gaps, counts)
    times: Floats = np.sort(starts + rng.uniform(size=len(starts)) * widths) - trace[0]
    return times
