"""Pictures over the time of a run: all share one clock and the marks of what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, nan

from serve.workbench.loadtest.reports.drawing_frame import (
    PlotLine,
    Scale,
    blocks,
    clock,
    fitting,
    foot,
    hovers,
    line_path,
    linear,
    picture,
    side,
    stretched,
    time_of,
)
from serve.workbench.loadtest.reports.drawing_marks import (
    Marks,
    mark_lines,
    marks_placed,
    moment,
    room_above,
)
from serve.workbench.loadtest.reports.page_words import bare, number, seconds

_FOOT = 22.0
_CLEAR = 8.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A part of a run; all numbers are per second of it."""

    begin: float
    end: float
    intended: float
    ended: float
    right: float
    failed: float


def latency_svg(
    lines: Sequence[PlotLine],
    most: float,
    marks: Marks = (),
    *,
    scale: Scale | None = None,
    notes: Iterable[tuple[float, float, str]] = (),
    is_half: bool = False,
    height: float = 190.0,
) -> str:
    """Latencies in seconds over the run's `most` seconds, with marks above; empty without any.

    `scale` is given where two pictures are to be compared, `notes` are what a pointer is told.
    A picture of half the page's width (`is_half`) has no room for the words of marks.
    """
    if not _known(lines):
        return ""
    x, y = clock(most), scale or latency_scale(lines)
    places = None if is_half else marks_placed(marks, most)
    top = _CLEAR + (room_above(places) if marks else 0.0)
    paths = (line_path(each, x, y, height) for each in lines)
    parts = (
        *side(y, top, height, lambda tick: bare(seconds(tick))),
        *mark_lines(marks, places, x, top, height),
        f'<line class="axis" x1="0" x2="100%" y1="{top + height:g}" y2="{top + height:g}"/>',
        stretched(top, height, paths),
        *hovers(notes, x, top, height),
    )
    return picture(top + height + _CLEAR, _latency_words(lines, marks), parts)


def latency_scale(lines: Sequence[PlotLine]) -> Scale:
    """For latencies; logarithmic where they lie far apart."""
    return fitting(value for each in lines for _, value in each.points)


def rate_svg(
    ticks: Sequence[Tick],
    most: float,
    marks: Marks = (),
    *,
    scale: Scale | None = None,
    is_open: bool = True,
    notes: Iterable[tuple[float, float, str]] = (),
    height: float = 120.0,
) -> str:
    """Calls per second over time: right and failed by when they were meant to start, and ended.

    The closed loop (not `is_open`) intends nothing, and no such line is drawn.
    """
    if not ticks:
        return ""
    x, y = clock(most), scale or rate_scale(ticks)
    ended = PlotLine("answered", "ended", [((e.begin + e.end) / 2, e.ended) for e in ticks])
    inner = (
        blocks(
            "right", ((e.begin, e.end, e.failed, e.failed + e.right) for e in ticks), x, y, height
        ),
        blocks("failed", ((e.begin, e.end, 0.0, e.failed) for e in ticks), x, y, height),
        line_path(ended, x, y, height),
        line_path(_intended(ticks), x, y, height) if is_open else "",
    )
    parts = (
        *side(y, _CLEAR, height, lambda tick: bare(number(tick))),
        stretched(_CLEAR, height, inner),
        *mark_lines(marks, None, x, _CLEAR, height, is_numbered=False),
        *foot(x, _CLEAR + height, lambda tick: time_of(tick, most)),
        *hovers(notes, x, _CLEAR, height),
    )
    return picture(_CLEAR + height + _FOOT, _rate_words(ticks), parts)


def rate_scale(ticks: Sequence[Tick]) -> Scale:
    """For rates; a burst of answers after a stall may leave the picture above twice the rate."""
    usual = max((max(each.intended, each.right + each.failed) for each in ticks), default=1.0)
    return linear(min(max([usual, *(each.ended for each in ticks)]), 2 * usual) or 1.0, count=3)


def readings_svg(
    lines: Sequence[PlotLine],
    most: float,
    marks: Marks,
    told: Callable[[float], str],
    *,
    spoken: str,
    height: float = 70.0,
) -> str:
    """A small picture of readings over time, from 0; empty without any."""
    values = [value for each in lines for _, value in each.points if isfinite(value)]
    if not values:
        return ""
    x, y = clock(most), linear(max(values), count=2)
    x = Scale(x.low, x.high, (x.ticks[0], x.ticks[-1])) if len(x.ticks) > 2 else x
    parts = (
        *side(y, _CLEAR, height, lambda tick: bare(told(tick))),
        *mark_lines(marks, None, x, _CLEAR, height, is_numbered=False),
        stretched(_CLEAR, height, (line_path(each, x, y, height) for each in lines)),
        *foot(x, _CLEAR + height, lambda tick: time_of(tick, most)),
    )
    return picture(_CLEAR + height + _FOOT, spoken, parts)


def shares_svg(
    names: Sequence[tuple[str, str]],
    spans: Sequence[tuple[float, float, Sequence[float]]],
    most: float,
    marks: Marks = (),
    *,
    height: float = 90.0,
) -> str:
    """Who answered, over time: (from, to, calls of each of `names`), stacked to the whole.

    `names` are (name, style).
    """
    x, y = clock(most), Scale(0.0, 1.0, (0.0, 0.5, 1.0))
    layers = []
    for place, (_, kind) in enumerate(names):
        steps = (
            (begin, end, sum(many[:place]) / sum(many), sum(many[: place + 1]) / sum(many))
            for begin, end, many in spans
            if sum(many)
        )
        layers.append(blocks(kind, steps, x, y, height))
    parts = (
        stretched(_CLEAR, height, layers),
        *side(y, _CLEAR, height, lambda value: f"{value * 100:.0f}\N{NO-BREAK SPACE}%"),
        *mark_lines(marks, None, x, _CLEAR, height, is_numbered=False),
        *foot(x, _CLEAR + height, lambda tick: time_of(tick, most)),
    )
    spoken = f"share of the responses by version over time: {', '.join(name for name, _ in names)}"
    return picture(_CLEAR + height + _FOOT, spoken, parts)


# --- in words ------------------------------------------------------------------------------------


def _intended(ticks: Sequence[Tick]) -> PlotLine:
    points: list[tuple[float, float]] = []
    for each in ticks:
        if points and points[-1][0] < each.begin:
            points.append((each.begin, nan))
        points += [(each.begin, each.intended), (each.end, each.intended)]
    return PlotLine("intended", "intended", points)


def _known(lines: Sequence[PlotLine]) -> bool:
    return any(isfinite(value) for each in lines for _, value in each.points)


def _latency_words(lines: Sequence[PlotLine], marks: Marks) -> str:
    told = []
    for each in lines:
        values = [value for _, value in each.points if isfinite(value)]
        if values:
            told.append(f"{each.name} between {seconds(min(values))} and {seconds(max(values))}")
    told += [f"at {moment(at)} {text}" for at, text in marks]
    return f"latency over time: {'; '.join(told)}"


def _rate_words(ticks: Sequence[Tick]) -> str:
    failed = sum(each.failed * (each.end - each.begin) for each in ticks)
    rights = [each.right for each in ticks]
    return (
        f"calls per second over time: between {number(min(rights))} and "
        f"{number(max(rights))} correct responses, {failed:.0f} calls failed"
    )
