"""Charts as SVG files of their own: points, lines and steps over two axes, by day and by night."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 440  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 18, 66, 52
_ROW = 17  # pixels from one row of names to the next
_COLOURS = (
    ("#0969da", "#4493f8"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#ab7df8"),
    ("#bf8700", "#d29922"),
    ("#6e7781", "#9198a1"),
)
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 14px }
  .small { font-size: 11px; fill: #57606a }
  .grid { stroke: #d0d7de } .rule { stroke: #57606a; stroke-dasharray: 4 3 }
  path { fill: none; stroke-width: 1.8; stroke-linejoin: round }
  circle { fill-opacity: .75 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d }
    .rule { stroke: #9198a1 }
  }
"""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Some points of one name. `kind`: `points`, `line`, or `steps` (each holds until the next)."""

    name: str
    points: tuple[tuple[float, float], ...]
    kind: str = "points"


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis, whose `least` and `most` may be given; a logarithm needs values above 0."""

    label: str
    is_log: bool = False
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """`rule`: what the dashed diagonal, on which both axes are equal, stands for; or empty."""

    title: str
    x: Axis
    y: Axis
    series: tuple[ChartSeries, ...]
    rule: str = ""


class _Scale:
    """Values to pixels."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        least = min(values, default=0.0) if axis.least is None else axis.least
        most = max(values, default=1.0) if axis.most is None else axis.most
        if not axis.is_log and axis.least is None and least > 0 and least < most / 2:
            least = 0.0
        if most <= least:
            most = least * 2 if axis.is_log else least + 1.0
        self.is_log, self.least, self.most = axis.is_log, least, most
        self._low, self._high = self._of(least), self._of(most)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.least), self.most)
        share = (self._of(inside) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Round values, about six of them."""
        if self.is_log:
            powers = range(math.floor(self._low) - 1, math.ceil(self._high) + 1)
            factors = (1, 2, 5) if self._high - self._low < 2.5 else (1,)
            found = [factor * 10.0**power for power in powers for factor in factors]
        else:
            step = _round_step((self.most - self.least) / 6)
            first = math.ceil(self.least / step - 1e-9)
            found = [step * count for count in range(first, first + 14)]
        return [one for one in found if self.least * 0.999 <= one <= self.most * 1.001 + 1e-12]

    def _of(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def draw(chart: Chart) -> str:
    """The chart as a file, with a description for those who cannot see it."""
    points = [point for one in chart.series for point in one.points]
    x = _Scale(chart.x, [x for x, _ in points], _LEFT, WIDTH - _RIGHT)
    y = _Scale(chart.y, [y for _, y in points], HEIGHT - _BOTTOM, _TOP)
    said = " ".join(f"{one.name}: {len(one.points)} points." for one in chart.series)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(chart.title)}</title>',
            f'<desc id="description">{escape(said)}</desc>',
            f"<style>{STYLE}{_colours(len(chart.series))}</style>",
            *_heading(chart),
            *_axes(chart, x, y),
            *(
                mark
                for number, one in enumerate(chart.series)
                for mark in _marks(one, number, x, y)
            ),
            "</svg>\n",
        ]
    )


def _colours(count: int) -> str:
    rules, dark = [], []
    for number in range(count):
        by_day, by_night = _COLOURS[number % len(_COLOURS)]
        rules.append(f".f{number} {{ fill: {by_day} }} .s{number} {{ stroke: {by_day} }}")
        dark.append(f".f{number} {{ fill: {by_night} }} .s{number} {{ stroke: {by_night} }}")
    return "\n  ".join([*rules, f"@media (prefers-color-scheme: dark) {{ {' '.join(dark)} }}"])


def _heading(chart: Chart) -> Iterator[str]:
    yield f'<text class="title" x="8" y="20">{escape(chart.title)}</text>'
    place, row = 8.0, 0
    for number, one in enumerate(chart.series):
        width = 34 + 6.6 * len(one.name)
        if place + width > WIDTH and place > 8:
            place, row = 8.0, row + _ROW
        yield (
            f'<rect class="f{number}" x="{place:.0f}" y="{33 + row}" width="11" height="11" '
            'rx="2"/>'
        )
        yield f'<text x="{place + 16:.0f}" y="{43 + row}">{escape(one.name)}</text>'
        place += width
    if chart.rule:
        text = f"dashed: {escape(chart.rule)}"
        yield f'<text class="small" x="{place:.0f}" y="{43 + row}">{text}</text>'


def _axes(chart: Chart, x: _Scale, y: _Scale) -> Iterator[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for value in x.ticks():
        at = x(value)
        yield f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{bottom}"/>'
        yield _small(at, bottom + 16, "middle", value)
    for value in y.ticks():
        at = y(value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
        yield _small(_LEFT - 7, at + 4, "end", value)
    middle = (_TOP + bottom) / 2
    yield (
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">'
        f"{escape(chart.x.label)}</text>"
    )
    yield (
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 16 {middle:.0f})">{escape(chart.y.label)}</text>'
    )
    if chart.rule:
        low, high = max(x.least, y.least), min(x.most, y.most)
        yield (
            f'<line class="rule" x1="{x(low):.1f}" y1="{y(low):.1f}" '
            f'x2="{x(high):.1f}" y2="{y(high):.1f}"/>'
        )


def _small(x: float, y: float, anchor: str, value: float) -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{value:g}</text>'


def _marks(one: ChartSeries, number: int, x: _Scale, y: _Scale) -> Iterator[str]:
    places = [(x(across), y(up)) for across, up in one.points]
    if one.kind == "points":
        for across, up in places:
            yield f'<circle class="f{number}" cx="{across:.1f}" cy="{up:.1f}" r="4.5"/>'
    elif places:
        yield f'<path class="s{number}" d="{_path(places, is_stepped=one.kind == "steps")}"/>'


def _path(places: Sequence[tuple[float, float]], *, is_stepped: bool) -> str:
    (first, height), *rest = places
    parts = [f"M{first:.1f} {height:.1f}"]
    for across, up in rest:
        parts.append(f"H{across:.1f}V{up:.1f}" if is_stepped else f"L{across:.1f} {up:.1f}")
    return "".join(parts)


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)
