"""The hints' part of a run's page: how many replicas were wanted, how many there were, and why.

Replicas over the time of a run: how many there were, how many were wanted, and the demand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import isfinite, nan

from serve.pages.frame import section
from serve.workbench.loadtest.observations.hints import DEMAND, GROUP, READY, WANTED
from serve.workbench.loadtest.observed import ObservedHint, ObservedSeries
from serve.workbench.loadtest.reports.drawing_frame import (
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
from serve.workbench.loadtest.reports.drawing_marks import Marks, mark_lines, moment
from serve.workbench.loadtest.reports.page_run import RunCourse
from serve.workbench.loadtest.reports.page_words import bare, figure, number, table
from serve.workbench.loadtest.reports.report import LoadRun

# --- replicas over the time of a run --------------------------------------------------------------


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


# --- the hints' part of a run's page --------------------------------------------------------------


_MOST = 40  # lines of a pool's table
_NOTE = (
    "Demand is the number of replicas that would be busy all the time: the calls of the "
    "pool's models, divided by the measured capacity of one replica."
)


def hints_part(run: LoadRun, course: RunCourse) -> str:
    """A picture and a table for each pool."""
    pools = dict.fromkeys(each.pool for each in run.observed.hints)
    shown = "".join(_pool(run, course, pool) for pool in pools)
    return section("Scaling hints", shown and f'{shown}<p class="soft note">{_NOTE}</p>')


def _pool(run: LoadRun, course: RunCourse, pool: str) -> str:
    found = {
        each.name: _points(each, course.seconds)
        for each in run.observed.series
        if (each.group, each.of) == (GROUP, pool)
    }
    ready, wanted, demand = (found.get(name, ()) for name in (READY, WANTED, DEMAND))
    advice = [
        each for each in run.observed.hints if each.pool == pool and each.at <= course.seconds
    ]
    entries = [
        ("right", f"ready, {_range(ready)}"),
        ("intended", f"desired, {_range(wanted)}"),
        ("p99", f"demand, {_range(demand)}"),
    ]
    svg = replicas_svg(
        ready,
        wanted,
        demand,
        course.seconds,
        course.marks,
        spoken=f"replicas of pool {pool} over time: {'; '.join(text for _, text in entries)}",
        notes=_notes(advice, course.seconds),
    )
    return figure(f"Pool {pool}", entries, svg) + _told(advice)


def _points(series: ObservedSeries, most: float) -> Points:
    return [
        (at, nan if value is None else value)
        for at, value in zip(series.seconds, series.values, strict=True)
        if 0 <= at <= most
    ]


def _range(points: Points) -> str:
    """`2`, or `1 to 3`."""
    known = [value for _, value in points if isfinite(value)]
    if not known:
        return "unknown"
    least, most = (bare(number(value)) for value in (min(known), max(known)))
    return least if least == most else f"{least} to {most}"


def _notes(advice: Sequence[ObservedHint], most: float) -> Iterator[tuple[float, float, str]]:
    ends = [each.at for each in advice[1:]] + [most]
    for each, end in zip(advice, ends, strict=False):
        texts = "; ".join(text for _, text in each.reasons)
        yield max(each.at, 0.0), max(each.at, end, 0.0), f"{each.what}: {texts}"


def _told(advice: Sequence[ObservedHint]) -> str:
    rows = [
        (
            moment(each.at),
            escape(each.what) + (" <small>kept, too little data</small>" if each.is_held else ""),
            "<br>".join(
                f"{escape(text)} <code>{escape(code)}</code>" for code, text in each.reasons
            ),
        )
        for each in advice[:_MOST]
    ]
    drawn = table(("Time", "Hint", "Reason"), rows, words=(0, 1, 2))
    left = len(advice) - _MOST
    return drawn + (f'<p class="soft">and {left} more, in report.json</p>' if left > 0 else "")
