"""When calls should start: drawn from a plan's arrivals, and read from what people write.

    poisson  constant  ramp:10..200  step:50,100,200  spike:x5@30s+10s  diurnal:x9@60s
    trace:FILE.csv  trace:FILE.csv*2

A shape is laid by a Poisson process, or evenly with `,even` behind it; `constant` is even and
`poisson` is the same rate by a Poisson process. A trace has its own spacing.

How the intended rate moves over a run: its integral and the inverse, for every shape.

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
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from serve.core.errors import Invalid
from serve.core.texts import parse_seconds
from serve.tensors.datatypes import Array
from serve.workbench.loadtest.plan import Arrivals, RateShape, Spacing
from serve.workbench.loadtest.traces import read_trace

# --- how the intended rate moves over a run -------------------------------------------------------


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


# --- when calls should start ----------------------------------------------------------------------


_CHUNK = 8192  # starts drawn at once: a soak of days holds no more of them


def starts(
    arrivals: Arrivals, seconds: float, *, seed: int, worker: int = 0, workers: int = 1
) -> Iterator[float]:
    """Ascending seconds in [0, seconds): those of one worker out of several.

    All workers draw the same sequence, and worker i takes every start whose number is i modulo
    `workers`; together they make exactly the arrivals of one.
    """
    drawn = 0
    for chunk in _chunks(arrivals, seconds, seed):
        yield from chunk[(worker - drawn) % workers :: workers].tolist()
        drawn += len(chunk)


def intended(arrivals: Arrivals, seconds: float, *, seed: int) -> tuple[int, ...]:
    """How many starts there are in each second, the last of which may be a part."""
    counts = np.zeros(math.ceil(seconds), np.int64)
    for chunk in _chunks(arrivals, seconds, seed):
        counts += np.bincount(chunk.astype(np.int64), minlength=len(counts))
    return tuple(counts.tolist())


def opening_rate(arrivals: Arrivals) -> float:
    """The rate at second 0, for a warm-up: calls per second, at least 1."""
    has_levels = arrivals.shape in (RateShape.RAMP, RateShape.STEP)
    return max(arrivals.levels[0] if has_levels else arrivals.rate, 1.0)


def _chunks(arrivals: Arrivals, seconds: float, seed: int) -> Iterator[Array]:
    if arrivals.shape is RateShape.TRACE:
        times = np.array(arrivals.times, np.float64)
        times = times[times < seconds]
        yield from (times[at : at + _CHUNK] for at in range(0, len(times), _CHUNK))
        return
    shape = curve(arrivals, seconds)
    most = shape.integral(seconds) - 1e-9  # an even start at the very end is none
    for values in _values(arrivals.spacing, seed):
        inside = values[values < most]
        found = shape.inverse(inside)
        yield found[found < seconds]
        if len(inside) < len(values):
            return


def _values(spacing: Spacing, seed: int) -> Iterator[Array]:
    """What the rate's integral is at each start, without end."""
    random = np.random.default_rng(seed)
    reached = 0.0
    while True:
        if spacing is Spacing.EVEN:
            yield reached + np.arange(_CHUNK)
            reached += _CHUNK
        else:
            values = reached + np.cumsum(random.standard_exponential(_CHUNK))
            reached = float(values[-1])
            yield values


def parse_arrivals(text: str, rate: float) -> Arrivals:
    """What a person asks for, at `rate` calls per second.

    A ramp, steps and a trace have their own rates: `rate` is not read then, and the result's is
    their mean. Raises `Invalid` for what is no arrivals, or a trace that cannot be read.
    """
    name, _, rest = text.strip().partition(":")
    if name == "trace":
        return _trace(rest)
    head, comma, last = text.strip().rpartition(",")
    chosen = Spacing(last) if comma and last in tuple(Spacing) else None
    name, colon, rest = (text.strip() if chosen is None else head).partition(":")
    if name not in ("ramp", "step") and not (math.isfinite(rate) and rate > 0):
        raise Invalid(
            f"the rate is {rate:g} calls per second", why="it has to be above 0", try_this="100"
        )
    spacing = chosen or (Spacing.EVEN if name == "constant" else Spacing.POISSON)
    if (name == "constant" and not colon) or text.strip() == "poisson":
        return Arrivals(rate, RateShape.CONSTANT, spacing)
    reader = _READERS.get(name)
    try:
        if reader is not None:
            return reader(rest, rate, spacing)
    except ValueError as error:
        raise Invalid(
            f"cannot read the arrivals {text!r}", why=str(error), try_this=_EXAMPLES[name]
        ) from error
    raise Invalid(
        f"unknown arrivals {text!r}",
        why=f"allowed values: poisson, constant, {', '.join(_EXAMPLES.values())}, "
        "trace:FILE.csv and trace:FILE.csv*2; add ',even' or ',poisson' to a shape to "
        "set the spacing of the calls",
        try_this="poisson",
    )


def _ramp(rest: str, _rate: float, spacing: Spacing) -> Arrivals:
    ends = rest.split("..")
    if len(ends) != 2:
        raise ValueError("a ramp needs two rates")
    levels = tuple(map(_number, ends))
    if not any(levels):
        raise ValueError("the rate is always 0")
    return Arrivals(sum(levels) / 2, RateShape.RAMP, spacing, levels)


def _step(rest: str, _rate: float, spacing: Spacing) -> Arrivals:
    levels = tuple(map(_number, rest.split(",")))
    if not any(levels):
        raise ValueError("the rate is always 0")
    return Arrivals(sum(levels) / len(levels), RateShape.STEP, spacing, levels)


def _spike(rest: str, rate: float, spacing: Spacing) -> Arrivals:
    found = re.fullmatch(r"x([^@]+)@([^+]+)\+(.+)", rest)
    if found is None:
        raise ValueError("a spike needs a factor, a start and a duration")
    at, lasting = _duration(found[2]), _duration(found[3])
    return Arrivals(rate, RateShape.SPIKE, spacing, (_number(found[1]),), at, lasting)


def _diurnal(rest: str, rate: float, spacing: Spacing) -> Arrivals:
    found = re.fullmatch(r"x([^@]+)@(.+)", rest)
    if found is None:
        raise ValueError("a diurnal rate needs the ratio of peak to trough, and its period")
    ratio, period = _number(found[1]), _duration(found[2])
    if ratio < 1 or period <= 0:
        raise ValueError("the ratio of peak to trough has to be 1 or more, and the period above 0")
    return Arrivals(rate, RateShape.DIURNAL, spacing, (ratio,), lasting=period)


_READERS: dict[str, Callable[[str, float, Spacing], Arrivals]] = {
    "ramp": _ramp,
    "step": _step,
    "spike": _spike,
    "diurnal": _diurnal,
}
_EXAMPLES = {
    "ramp": "ramp:10..200",
    "step": "step:50,100,200",
    "spike": "spike:x5@30s+10s",
    "diurnal": "diurnal:x9@60s",
}


def _trace(rest: str) -> Arrivals:
    found = re.fullmatch(r"(.+)\*([0-9.]+)", rest)
    try:
        name, speed = (found[1], _number(found[2])) if found else (rest, 1.0)
        if not name or speed <= 0:
            raise ValueError("a trace needs a file name, and its factor has to be above 0")
    except ValueError as error:
        raise Invalid(
            f"cannot read the arrivals 'trace:{rest}'", why=str(error), try_this="trace:FILE.csv*2"
        ) from error
    times = read_trace(Path(name), speed=speed)
    rate = len(times) / times[-1] if times[-1] > 0 else float(len(times))
    return Arrivals(rate, RateShape.TRACE, Spacing.POISSON, times=times)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{text!r} is not a number of 0 or more")
    return value


def _duration(text: str) -> float:
    try:
        return parse_seconds(text)
    except Invalid as error:
        raise ValueError(error.what) from error
