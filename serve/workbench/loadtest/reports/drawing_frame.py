"""The ground of every picture of a load report: scales, grids, and words that keep their size.

A picture is as wide as its place on the page. Lines and areas live in an inner picture, 1000 units
wide, which is stretched to that place; words and points stand at shares of the width, so they are
as large on a telephone as on a desk. Heights are pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from serve.workbench.loadtest.reports.page_words import speak

WIDE = 1000
_LOG_FROM = 30.0  # largest ÷ smallest from which a scale is logarithmic
_TIMES = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to shares of a length: 0 where it begins, 1 where it ends."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def at(self, value: float) -> float:
        """Where a value stands; what lies outside stands at the end."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A line by its points; where y is not a number it is broken. `kind` is its style."""

    name: str
    kind: str
    points: Sequence[tuple[float, float]]


def linear(most: float, *, count: int = 4) -> Scale:
    """From 0 to a round number at or above `most`."""
    most = most if isfinite(most) and most > 0 else 1.0
    rough = most / count
    power = 10.0 ** floor(log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * (1 - 1e-9))
    steps = max(1, ceil(most / step - 1e-9))
    return Scale(0.0, steps * step, tuple(place * step for place in range(steps + 1)))


def logarithmic(least: float, most: float) -> Scale:
    """Between numbers that begin with 1, 2 or 5; at most six ticks or so."""
    first = floor(log10(least))
    rungs = [m * 10.0**p for p in range(first, ceil(log10(most)) + 1) for m in (1, 2, 5)]
    below = [rung for rung in rungs if rung <= least * (1 + 1e-9)]
    above = [rung for rung in rungs if rung >= most * (1 - 1e-9)]
    low, high = below[-1], above[0] if above else rungs[-1]
    if low == high:
        low, high = low / 2, high * 2
    inside = [rung for rung in rungs if low * (1 - 1e-9) <= rung <= high * (1 + 1e-9)]
    if len(inside) > 6:
        inside = [rung for rung in inside if abs(log10(rung) - round(log10(rung))) < 1e-9]
    return Scale(low, high, tuple(inside), True)


def fitting(values: Iterable[float]) -> Scale:
    """Logarithmic where values lie far apart, from 0 otherwise."""
    known = [each for each in values if isfinite(each) and each > 0]
    if known and max(known) / min(known) > _LOG_FROM:
        return logarithmic(min(known), max(known))
    return linear(max(known, default=1.0))


def clock(seconds: float) -> Scale:
    """From second 0, with at most seven ticks at round times."""
    seconds = max(seconds, 1e-3)
    step = next((each for each in _TIMES if seconds / each <= 6), seconds / 6)
    ticks = tuple(float(step * place) for place in range(int(seconds / step + 1e-9) + 1))
    return Scale(0.0, seconds, ticks)


def time_of(second: float, most: float) -> str:
    """A tick of a clock: seconds, minutes or hours for all of them."""
    for unit, name, enough in ((3600, "h", 6 * 3600), (60, "min", 300)):
        if most >= enough:
            return f"{second / unit:.3g}\N{NO-BREAK SPACE}{name}"
    return f"{second:.3g}\N{NO-BREAK SPACE}s"


# --- pieces of a picture -------------------------------------------------------------------------


def picture(height: float, spoken: str, parts: Iterable[str], *, kind: str = "") -> str:
    """A whole picture; `spoken` is what it shows, for those who cannot see it."""
    return (
        f'<svg class="{f"chart {kind}".strip()}" role="img" aria-label="{speak(spoken)}" '
        f'style="height:{height:g}px">{"".join(parts)}</svg>'
    )


def stretched(top: float, height: float, parts: Iterable[str]) -> str:
    """The inner picture of lines and areas."""
    return (
        f'<svg class="in" y="{top:g}" width="100%" height="{height:g}" '
        f'style="height:{height:g}px" viewBox="0 0 {WIDE} {height:g}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def line_path(line: PlotLine, x: Scale, y: Scale, height: float) -> str:
    """A line of an inner picture; a point alone is a dot."""
    words: list[str] = []
    is_open = False
    for across, up in line.points:
        if not isfinite(up):
            is_open = False
            continue
        place = f"{x.at(across) * WIDE:.1f} {(1 - y.at(up)) * height:.1f}"
        words.append(f"L{place}" if is_open else f"M{place}h0")
        is_open = True
    return f'<path class="line {line.kind}" d="{"".join(words)}"/>' if words else ""


def blocks(
    kind: str,
    spans: Iterable[tuple[float, float, float, float]],
    x: Scale,
    y: Scale,
    height: float,
) -> str:
    """Filled steps of an inner picture: (from, to, lower, upper)."""
    words = []
    for begin, end, lower, upper in spans:
        if isfinite(lower) and isfinite(upper) and upper > lower:
            left, right = (x.at(each) * WIDE for each in (begin, end))
            bottom, top = ((1 - y.at(each)) * height for each in (lower, upper))
            words.append(f"M{left:.1f} {bottom:.1f}V{top:.1f}H{right:.1f}V{bottom:.1f}z")
    return f'<path class="block {kind}" d="{"".join(words)}"/>' if words else ""


def side(y: Scale, top: float, height: float, told: Callable[[float], str]) -> Iterator[str]:
    """Lines across, with their values at the left."""
    for tick in y.ticks:
        at = top + (1 - y.at(tick)) * height
        yield f'<line class="grid" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="end" x="-8" y="{at + 4:.1f}">{escape(told(tick))}</text>'


def foot(x: Scale, base: float, told: Callable[[float], str]) -> Iterator[str]:
    """The line below, with its ticks."""
    yield f'<line class="axis" x1="0" x2="100%" y1="{base:g}" y2="{base:g}"/>'
    for tick in x.ticks:
        at = f"{x.at(tick) * 100:.2f}%"
        yield f'<line class="axis" x1="{at}" x2="{at}" y1="{base:g}" y2="{base + 4:g}"/>'
        yield f'<text x="{at}" y="{base + 17:g}">{escape(told(tick))}</text>'


def hovers(
    spans: Iterable[tuple[float, float, str]], x: Scale, top: float, height: float
) -> Iterator[str]:
    """What a pointer is told over each part of the width: (from, to, text)."""
    for begin, end, text in spans:
        left, right = x.at(begin) * 100, x.at(end) * 100
        yield (
            f'<rect class="hover" x="{left:.2f}%" y="{top:g}" width="{right - left:.2f}%" '
            f'height="{height:g}"><title>{escape(text)}</title></rect>'
        )
