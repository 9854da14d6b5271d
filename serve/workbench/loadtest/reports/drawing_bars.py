"""Pictures of how a whole is made up: where the time goes, and how large batches were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isfinite, log10

from serve.workbench.loadtest.reports.drawing_frame import (
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
from serve.workbench.loadtest.reports.page_words import bare, count, number, seconds, share

_CLEAR, _FOOT = 8.0, 22.0
_NINES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
_MOST_COLUMNS = 24
_MOST_LABELS = 12


def parts_svg(parts: Sequence[tuple[str, float, str]], *, height: float = 34.0) -> str:
    """One bar of (name, seconds, style), each as long as its time; empty where there is none."""
    whole = sum(long for _, long, _ in parts)
    if not whole > 0:
        return ""

    def drawn() -> Iterator[str]:
        begin = 0.0
        for name, long, kind in parts:
            of = long / whole
            text = f"{name}: {seconds(long)}, {share(of)}"
            yield (
                f'<rect class="part {kind}" x="{begin * 100:.3f}%" y="0" '
                f'width="{of * 100:.3f}%" height="{height:g}">'
                f"<title>{escape(text)}</title></rect>"
            )
            if of >= 0.12:
                middle = (begin + of / 2) * 100
                yield (
                    f'<text class="inside" x="{middle:.2f}%" y="{height / 2 + 4:g}">'
                    f"{escape(seconds(long))}</text>"
                )
            begin += of

    told = ", ".join(f"{name} {seconds(long)}" for name, long, _ in parts)
    return picture(height, f"average time per call: {told}", drawn(), kind="whole")


def batches_svg(batches: Mapping[int, int], *, height: float = 110.0) -> str:
    """How many executions had which batch size; empty without any.

    Where there are too many sizes, neighbours share a column.
    """
    columns = _columns(batches)
    if not columns:
        return ""
    y = linear(max(many for _, many in columns), count=3)
    wide = 100 / len(columns)

    def drawn() -> Iterator[str]:
        yield from side(y, _CLEAR, height, lambda tick: bare(number(tick)))
        every = -(-len(columns) // _MOST_LABELS)
        for place, (name, many) in enumerate(columns):
            tall = max(y.at(many) * height, 1.0) if many else 0.0
            yield (
                f'<rect x="{(place + 0.12) * wide:.2f}%" y="{_CLEAR + height - tall:.1f}" '
                f'width="{wide * 0.76:.2f}%" height="{tall:.1f}">'
                f"<title>batch of {name}: {count(many)} execution{'s' * (many != 1)}</title></rect>"
            )
            if place % every == 0:
                yield (
                    f'<text x="{(place + 0.5) * wide:.2f}%" '
                    f'y="{_CLEAR + height + 17:g}">{name}</text>'
                )
        yield from foot(Scale(0.0, 1.0, ()), _CLEAR + height, number)

    told = ", ".join(f"{count(many)} of {name}" for name, many in columns)
    return picture(_CLEAR + height + _FOOT, f"executions by batch size: {told}", drawn())


def _columns(batches: Mapping[int, int]) -> list[tuple[str, int]]:
    """Names and counts, at most so many; sizes that never occurred between others are there."""
    known = {size: many for size, many in batches.items() if many > 0}
    if not known:
        return []
    least, most = min(known), max(known)
    if most - least < _MOST_COLUMNS:
        return [(str(size), known.get(size, 0)) for size in range(least, most + 1)]
    if len(known) <= _MOST_COLUMNS:
        return [(str(size), known[size]) for size in sorted(known)]
    step = -(-(most - least + 1) // _MOST_COLUMNS)
    starts = range(least, most + 1, step)
    return [
        (f"{start}–{start + step - 1}", sum(known.get(start + one, 0) for one in range(step)))
        for start in starts
    ]


# --- latencies by percentile ---------------------------------------------------------------------


def nines(quantile: float) -> float:
    """How many nines a share has: 0.9 → 1, 0.99 → 2."""
    return -log10(1 - quantile)


def shares_up_to(calls: int) -> tuple[float, ...]:
    """Shares at equal steps of nines, as far as so many calls can tell them apart."""
    most = min(log10(calls), nines(_NINES[-1])) if calls > 1 else 0.0
    steps = max(int(most * 24), 1)
    return tuple(1 - 10 ** -(most * place / steps) for place in range(1, steps + 1)) if most else ()


def percentiles_svg(lines: Sequence[PlotLine], *, height: float = 190.0) -> str:
    """Latencies (seconds) by the share of calls that they do not exceed; empty without any.

    Points are (share, seconds). The axis gives every further nine the same room.
    """
    values = [value for each in lines for _, value in each.points if isfinite(value)]
    if not values:
        return ""
    most = max(nines(each) for line in lines for each, _ in line.points)
    shown = tuple(each for each in _NINES if nines(each) <= most + 1e-9)
    x = Scale(0.0, most, tuple(nines(each) for each in shown))
    y = fitting(values)
    moved = [PlotLine(e.name, e.kind, [(nines(share), v) for share, v in e.points]) for e in lines]
    parts = (
        *side(y, _CLEAR, height, lambda tick: bare(seconds(tick))),
        *(
            f'<line class="grid" x1="{x.at(at) * 100:.2f}%" x2="{x.at(at) * 100:.2f}%" '
            f'y1="{_CLEAR:g}" y2="{_CLEAR + height:g}"/>'
            for at in x.ticks
        ),
        stretched(
            _CLEAR,
            height,
            (_between(moved, x, y, height), *(line_path(e, x, y, height) for e in moved)),
        ),
        *foot(x, _CLEAR + height, _percentile),
    )
    told = []
    for each in lines:
        at = [(share, min(each.points, key=lambda point: abs(point[0] - share))) for share in shown]
        words = ", ".join(f"{_percentile(nines(share))} {seconds(p[1])}" for share, p in at)
        told.append(f"{each.name}: {words}")
    spoken = f"latency by percentile; {'; '.join(told)}"
    return picture(_CLEAR + height + _FOOT, spoken, parts)


def _percentile(nine: float) -> str:
    return f"{round(100 * (1 - 10**-nine), 6):g}\N{NO-BREAK SPACE}%"


def _between(lines: Sequence[PlotLine], x: Scale, y: Scale, height: float) -> str:
    """The gap between the first two lines, filled."""
    if len(lines) < 2:
        return ""
    points = [*lines[0].points, *reversed(lines[1].points)]
    if not all(isfinite(value) for _, value in points):
        return ""
    words = "L".join(
        f"{x.at(across) * 1000:.1f} {(1 - y.at(up)) * height:.1f}" for across, up in points
    )
    return f'<path class="block gap" d="M{words}z"/>'
