"""Replicas over the time of a run: how many there were, how many were wanted, and the demand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from serve.load.reports.drawing_frame import (
    PlotLine,
    blocks,
    clock,
    foot,
    hovers,
    line_path,
    linear,
    picture,
    side,
    stretched,
    time_of,
)
from serve.load.reports.drawing_marks import Marks, mark_lines
from serve.load.reports.page_words import bare, number

Points = Sequence[tuple[float, float]]

_FOOT, _CLEAR = 22.0, 8.0


def replicas_svg(
    ready: Points,
    wanted: Points,
    demand: Points,
    most: float,
    marks: Marks,
    *,
    spoken: str,
    notes: Iterable[tuple[float, float, str]] = (),
    height: float = 120.0,
) -> str:
    """Ready replicas as steps, filled, wanted ones as steps, and the demand as a line.

    Points are (second, replicas) over the run's `most` seconds, what is not known nan; a step holds
    until the next point. Empty without any. `notes` are what a pointer is told.
    """
    values = [value for _, value in (*ready, *wanted, *demand) if isfinite(value)]
    if not values:
        return ""
    x, y = clock(most), linear(max(*values, 1.0), count=3)
    inner = (
        blocks("right", ((a, b, 0.0, value) for a, b, value in _steps(ready, most)), x, y, height),
        line_path(PlotLine("demand", "p99", demand), x, y, height),
        line_path(PlotLine("wanted", "intended", _stepped(wanted, most)), x, y, height),
    )
    parts = (
        *side(y, _CLEAR, height, lambda tick: bare(number(tick))),
        stretched(_CLEAR, height, inner),
        *mark_lines(marks, None, x, _CLEAR, height, is_numbered=False),
        *foot(x, _CLEAR + height, lambda tick: time_of(tick, most)),
        *hovers(notes, x, _CLEAR, height),
    )
    return picture(_CLEAR + height + _FOOT, spoken, parts)


def _steps(points: Points, most: float) -> Iterator[tuple[float, float, float]]:
    """(from, to, value); the last one holds to the end."""
    ends = [at for at, _ in points[1:]] + [most]
    for (at, value), end in zip(points, ends, strict=False):
        yield at, max(at, end), value


def _stepped(points: Points, most: float) -> list[tuple[float, float]]:
    """The same as a line with corners."""
    steps = _steps(points, most)
    return list(itertools.chain.from_iterable(((a, value), (b, value)) for a, b, value in steps))
