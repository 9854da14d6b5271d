"""Pictures of several runs: a value against a measure, and ratios with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from math import ceil, isfinite, nan

from serve.workbench.loadtest.reports.drawing_frame import (
    PlotLine,
    Scale,
    fitting,
    foot,
    line_path,
    linear,
    logarithmic,
    picture,
    side,
    stretched,
)
from serve.workbench.loadtest.reports.page_words import bare, number

_CLEAR, _FOOT = 10.0, 24.0
_LOG_FROM = 16.0  # largest ÷ smallest x
_CLOSEST = 0.07  # of the width, between two ticks
_ROW = 34.0


def sweep_svg(
    names: tuple[str, str],
    xs: Sequence[float],
    ys: Sequence[float],
    lows: Sequence[float] = (),
    highs: Sequence[float] = (),
    *,
    kinds: Sequence[str] | None = None,
    height: float = 210.0,
) -> str:
    """Points with whiskers from `lows` to `highs`; what is not known is left out.

    `names` are of x and y, `kinds` the styles of the points. An axis is logarithmic where its
    values lie far apart.
    """
    lows, highs = (tuple(some) or (nan,) * len(ys) for some in (lows, highs))
    styles = kinds or ("",) * len(ys)
    every = zip(xs, ys, lows, highs, styles, strict=True)
    points = sorted(each for each in every if isfinite(each[0] + each[1]))
    if not points:
        return ""
    x = _across([each[0] for each in points])
    y = fitting(value for each in points for value in each[1:4] if isfinite(value))
    line = PlotLine(names[1], "p50", [(each[0], each[1]) for each in points])
    parts = (
        *side(y, _CLEAR, height, lambda tick: bare(number(tick))),
        stretched(_CLEAR, height, (line_path(line, x, y, height),)),
        *(part for point in points for part in _point(names, point, x, y, height)),
        *foot(x, _CLEAR + height, lambda tick: bare(number(tick))),
    )
    told = "; ".join(f"{number(e[0])}: {_interval(*e[1:4])}" for e in points)
    return picture(
        _CLEAR + height + _FOOT, f"{names[1]} by {names[0]}: {told}", parts, kind="inset"
    )


def _point(
    names: tuple[str, str],
    point: tuple[float, float, float, float, str],
    x: Scale,
    y: Scale,
    height: float,
) -> Iterator[str]:
    """A dot with its whisker, where the interval is known."""
    value, measure, low, high, kind = point
    across = f"{x.at(value) * 100:.2f}%"
    up = [_CLEAR + (1 - y.at(each)) * height for each in (measure, low, high) if isfinite(each)]
    if len(up) == 3:
        yield (
            f'<line class="{f"whisker {kind}".strip()}" x1="{across}" x2="{across}" '
            f'y1="{up[1]:.1f}" y2="{up[2]:.1f}"/>'
        )
    told = f"{names[0]} {number(value)}: {names[1]} {_interval(measure, low, high)}"
    yield (
        f'<circle class="{kind}" cx="{across}" cy="{up[0]:.1f}" r="4">'
        f"<title>{escape(told)}</title></circle>"
    )


def ratio_scale(values: Sequence[float]) -> Scale:
    """Logarithmic, as far to the left of 1 as to the right, and wide enough for all values."""
    known = [each for each in values if isfinite(each) and each > 0]
    reach = max([1.25, *(max(each, 1 / each) for each in known)])
    reach = min(reach * 1.05, 100.0)
    ladder = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
    last = max((each for each in ladder if each <= reach), default=1.1)
    inner = (0.1, 1.0, 10.0) if last > 30 else (1.0,)
    return Scale(1 / reach, reach, (1 / last, *inner, last), True)


def ratio_svg(ratio: float, low: float, high: float, scale: Scale, kind: str) -> str:
    """A row of a forest plot: the point, its interval, and the line of 1."""
    middle = _ROW / 2
    one = f"{scale.at(1.0) * 100:.2f}%"
    parts = [f'<line class="one" x1="{one}" x2="{one}" y1="0" y2="{_ROW:g}"/>']
    if isfinite(low) and isfinite(high):
        begin, end = (f"{scale.at(each) * 100:.2f}%" for each in (low, high))
        parts.append(
            f'<line class="whisker {kind}" x1="{begin}" x2="{end}" '
            f'y1="{middle:g}" y2="{middle:g}"/>'
        )
    if isfinite(ratio):
        parts.append(
            f'<circle class="{kind}" cx="{scale.at(ratio) * 100:.2f}%" cy="{middle:g}" r="5"/>'
        )
    return picture(_ROW, f"ratio {_interval(ratio, low, high)}", parts, kind="strip")


def ratio_axis_svg(scale: Scale) -> str:
    """The axis below a forest plot."""
    one = f"{scale.at(1.0) * 100:.2f}%"
    top = f'<line class="one" x1="{one}" x2="{one}" y1="0" y2="4"/>'
    parts = (top, *foot(scale, 4.0, lambda tick: bare(number(tick))))
    return picture(26.0, "ratios on a logarithmic axis", parts, kind="strip")


def _across(values: Sequence[float]) -> Scale:
    """An axis with ticks at the values themselves, where there is room for their names."""
    low, high = values[0], values[-1]
    if low == high:
        return Scale(low - 1, high + 1, (low,))
    is_log = low > 0 and high / low >= _LOG_FROM
    own = Scale(low, high, tuple(dict.fromkeys(values)), is_log)
    if all(own.at(b) - own.at(a) >= _CLOSEST for a, b in pairwise(own.ticks)):
        return own
    round_ones = logarithmic(low, high).ticks if is_log else linear(high - low, count=5).ticks
    if not is_log:
        step = round_ones[1]
        round_ones = tuple(step * place for place in range(ceil(low / step), int(high / step) + 1))
    return Scale(low, high, tuple(t for t in round_ones if low <= t <= high), is_log)


def _interval(value: float, low: float, high: float) -> str:
    if isfinite(low) and isfinite(high):
        return f"{number(value)} ({number(low)} to {number(high)})"
    return number(value)
