"""The picture of a tuning: throughput against latency, as measured, as predicted, and the curve.

A point is right and low when it is good. The curve joins what nothing else beats in both: the
measured trials that no other trial exceeds in rate with a latency as low.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from serve.load.reports.drawing_frame import (
    PlotLine,
    Scale,
    fitting,
    foot,
    line_path,
    linear,
    picture,
    side,
    stretched,
)
from serve.load.reports.page_words import bare, number, seconds

_CLEAR, _FOOT, _HEIGHT = 14.0, 24.0, 280.0
KINDS = {
    "predicted": "calm",
    "missed": "bad",
    "met": "",
    "present": "c2",
    "winner": "good",
}


@dataclass(frozen=True, slots=True)
class Dot:
    """Calls/s and seconds of latency; `kind` is one of `KINDS`, `text` is told to a pointer."""

    rate: float
    latency: float
    kind: str
    text: str


def front(dots: Sequence[Dot]) -> tuple[Dot, ...]:
    """Those that no other one beats: by ascending rate, and so by ascending latency."""
    found: list[Dot] = []
    for dot in sorted(dots, key=lambda dot: (-dot.rate, dot.latency)):
        if not found or dot.latency < found[-1].latency:
            found.append(dot)
    return tuple(reversed(found))


def pareto_svg(dots: Sequence[Dot], limit: float) -> str:
    """The picture; `limit` is the objective's, in seconds. Empty without anything measured."""
    measured = [dot for dot in dots if dot.kind != "predicted"]
    if not measured:
        return ""
    x = linear(max(dot.rate for dot in dots) * 1.02)
    y = fitting([*(dot.latency for dot in dots), limit])
    best = front(measured)
    line = PlotLine("Pareto curve", "p50", [(dot.rate, dot.latency) for dot in best])
    parts = (
        *side(y, _CLEAR, _HEIGHT, lambda tick: bare(seconds(tick))),
        *_limit(limit, y),
        stretched(_CLEAR, _HEIGHT, (line_path(line, x, y, _HEIGHT),)),
        *(part for dot in dots for part in _dot(dot, x, y)),
        *foot(x, _CLEAR + _HEIGHT, lambda tick: bare(number(tick))),
    )
    told = "; ".join(f"{number(dot.rate)}/s: {seconds(dot.latency)}" for dot in best)
    return picture(
        _CLEAR + _HEIGHT + _FOOT,
        f"latency by calls per second, Pareto front: {told}",
        parts,
        kind="inset",
    )


def _limit(limit: float, y: Scale) -> Iterator[str]:
    at = _CLEAR + (1 - y.at(limit)) * _HEIGHT
    yield f'<line class="one" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>'
    yield f'<text class="end" x="100%" y="{at - 5:.1f}">objective</text>'


def _dot(dot: Dot, x: Scale, y: Scale) -> Iterator[str]:
    radius = 6 if dot.kind in ("present", "winner") else 3 if dot.kind == "predicted" else 4
    yield (
        f'<circle class="{KINDS[dot.kind]}" cx="{x.at(dot.rate) * 100:.2f}%" '
        f'cy="{_CLEAR + (1 - y.at(dot.latency)) * _HEIGHT:.1f}" r="{radius}">'
        f"<title>{escape(dot.text)}</title></circle>"
    )
