"""The picture of a comparison, as SVG: for each load, late calls against what replicas cost.

Each scaler is a dot for each of its parameters, its usual one drawn large, and a line through the
best of them, but not through the fixed fleets. Further down is better, and further left. Late calls
are drawn as a logarithm, from 0.01 %; what is less stands at the bottom.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from serve.workbench.simulator.comparison import CALLS, FIXED, KPA, OURS, RAY, UTILISATION
from serve.workbench.simulator.fronts import FrontPoint, front

COLUMNS, WIDE, HIGH = 3, 280, 170  # panels in a row, pixels of each
LEFT, RIGHT, ABOVE, BELOW, TOP = 46, 8, 26, 30, 52
DEAREST = 3.0  # × the oracle; what is dearer stands at the edge
RAREST, MOST = 1e-4, 1.0  # shares
SCALERS = (OURS, CALLS, UTILISATION, KPA, RAY, FIXED)
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 14px }
  .small { font-size: 10.5px; fill: #57606a }
  .grid { stroke: #d0d7de }
  polyline { fill: none; stroke-width: 1.5 }
  .c0 { fill: #cf222e; stroke: #cf222e } .c1 { fill: #0969da; stroke: #0969da }
  .c2 { fill: #8c959f; stroke: #8c959f } .c3 { fill: #bf8700; stroke: #bf8700 }
  .c4 { fill: #8250df; stroke: #8250df } .c5 { fill: #1a7f37; stroke: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .c0 { fill: #ff7b72; stroke: #ff7b72 } .c1 { fill: #4493f8; stroke: #4493f8 }
    .c2 { fill: #848d97; stroke: #848d97 } .c3 { fill: #d29922; stroke: #d29922 }
    .c4 { fill: #ab7df8; stroke: #ab7df8 } .c5 { fill: #3fb950; stroke: #3fb950 }
  }
"""


def svg(points: Sequence[FrontPoint], title: str) -> str:
    """The picture as a file of its own, with a description for those who cannot see it."""
    loads = list(dict.fromkeys(one.load for one in points))
    rows = math.ceil(len(loads) / COLUMNS)
    wide = COLUMNS * WIDE + 8
    high = TOP + rows * HIGH
    parts = [part for place, load in enumerate(loads) for part in _panel(points, load, place)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
            f'height="{high}" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(described(points))}</desc>',
            f"<style>{STYLE}</style>",
            *_heading(title),
            *parts,
            "</svg>\n",
        ]
    )


def described(points: Sequence[FrontPoint]) -> str:
    """Each scaler at its usual parameter, in words."""
    return " ".join(
        f"{one.load}, {one.scaler}: {100 * one.late:.2g} % late at {one.cost:.2f} times the oracle."
        for one in points
        if one.is_usual and one.scaler in SCALERS
    )


def _heading(title: str) -> Iterator[str]:
    yield f'<text class="title" x="8" y="18">{escape(title)}</text>'
    place = 8
    for number, name in enumerate(SCALERS):
        yield f'<circle class="c{number}" cx="{place + 5}" cy="35" r="4.5"/>'
        yield f'<text x="{place + 14}" y="39">{escape(name)}</text>'
        place += 34 + 7 * len(name)


def _panel(points: Sequence[FrontPoint], load: str, number: int) -> Iterator[str]:
    left = (number % COLUMNS) * WIDE + LEFT
    top = TOP + (number // COLUMNS) * HIGH + ABOVE
    yield f'<text x="{left}" y="{top - 8}">{escape(load)}</text>'
    yield from _grid(left, top)
    for colour, scaler in reversed(list(enumerate(SCALERS))):
        here = [one for one in points if one.load == load and one.scaler == scaler]
        line = " ".join(
            f"{left + _across(one.cost):.1f},{top + _down(one.late):.1f}" for one in front(here)
        )
        if " " in line and scaler != FIXED:
            yield f'<polyline class="c{colour}" style="fill: none" points="{line}"/>'
        for one in here:
            x, y = left + _across(one.cost), top + _down(one.late)
            told = f"{one.scaler} {one.parameter}: {100 * one.late:.3g} % late, × {one.cost:.2f}"
            yield (
                f'<circle class="c{colour}" cx="{x:.1f}" cy="{y:.1f}" '
                f'r="{4.5 if one.is_usual else 2}"><title>{escape(told)}</title></circle>'
            )


def _grid(left: float, top: float) -> Iterator[str]:
    right, bottom = left + _across(DEAREST), top + _down(RAREST)
    for share in (1.0, 0.1, 0.01, 0.001, RAREST):
        y = top + _down(share)
        label = f"{100 * share:g} %"
        yield f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="small" x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for cost in (1.0, 1.5, 2.0, 2.5, 3.0):
        x = left + _across(cost)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom:.1f}"/>'
        yield (
            f'<text class="small" x="{x:.1f}" y="{bottom + 14:.1f}" '
            f'text-anchor="middle">× {cost:g}</text>'
        )


def _across(cost: float) -> float:
    least = 0.8
    share = (min(max(cost, least), DEAREST) - least) / (DEAREST - least)
    return share * (WIDE - LEFT - RIGHT)


def _down(late: float) -> float:
    late = min(max(late, RAREST), MOST)
    return math.log(MOST / late) / math.log(MOST / RAREST) * (HIGH - ABOVE - BELOW)
