"""Horizontal bars as SVG: groups of bars, a line at 1, readable in light and in dark pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABELS, RIGHT = 840, 265, 60  # pixels: all, the groups' names, the values behind the bars
BAR, GAP, GROUP_GAP, TOP = 13, 3, 14, 64
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 14px }
  .small { font-size: 11px; fill: #57606a }
  .one { stroke: #57606a; stroke-dasharray: 3 3 }
  .c0 { fill: #8c959f } .c1 { fill: #bf8700 } .c2 { fill: #0969da } .c3 { fill: #8250df }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .one { stroke: #9198a1 }
    .c0 { fill: #6e7681 } .c1 { fill: #d29922 } .c2 { fill: #4493f8 } .c3 { fill: #ab7df8 }
  }
"""


@dataclass(frozen=True, slots=True)
class Group:
    """One group of bars; a value of None has no bar."""

    label: str
    values: tuple[float | None, ...]  # one per name of the picture


@dataclass(frozen=True, slots=True)
class Picture:
    """Bars relative to 1, which a dashed line marks. At most four names: there are four colours."""

    title: str
    names: tuple[str, ...]
    groups: tuple[Group, ...]
    line: str  # what the dashed line stands for


def svg(picture: Picture) -> str:
    """The picture as a file of its own, with a description for those who cannot see it."""
    tall = len(picture.names) * (BAR + GAP) + GROUP_GAP
    height = TOP + len(picture.groups) * tall
    scale = _scale(picture.groups)
    body = [*_heading(picture), *_bars(picture, tall, scale), _one(scale, height)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(picture.title)}</title>',
            f'<desc id="description">{escape(describe(picture))}</desc>',
            f"<style>{STYLE}</style>",
            *body,
            "</svg>\n",
        ]
    )


def describe(picture: Picture) -> str:
    """All values in words."""
    return " ".join(
        f"{group.label}: {', '.join(_named(picture.names, group.values))}."
        for group in picture.groups
    )


def _named(names: Sequence[str], values: Sequence[float | None]) -> Iterator[str]:
    for name, value in zip(names, values, strict=True):
        if value is not None:
            yield f"{name} {value:.2f}"


def _scale(groups: Sequence[Group]) -> float:
    """Pixels per unit, so that the longest bar and the line at 1 fit."""
    longest = max((value for group in groups for value in group.values if value), default=1.0)
    return (WIDTH - LABELS - RIGHT) / max(longest, 1.0)


def _heading(picture: Picture) -> Iterator[str]:
    yield f'<text class="title" x="8" y="20">{escape(picture.title)}</text>'
    place = 8
    for number, name in enumerate(picture.names):
        yield f'<rect class="c{number}" x="{place}" y="33" width="11" height="11" rx="2"/>'
        yield f'<text x="{place + 16}" y="43">{escape(name)}</text>'
        place += 32 + 8 * len(name)
    yield f'<text class="small" x="{place}" y="43">dashed: {escape(picture.line)}</text>'


def _bars(picture: Picture, tall: int, scale: float) -> Iterator[str]:
    for row, group in enumerate(picture.groups):
        top = TOP + row * tall
        middle = top + len(group.values) * (BAR + GAP) / 2 + 3
        yield f'<text x="8" y="{middle:.0f}">{escape(group.label)}</text>'
        for number, value in enumerate(group.values):
            if value is None:
                continue
            y, long = top + number * (BAR + GAP), max(1.0, value * scale)
            yield (
                f'<rect class="c{number}" x="{LABELS}" y="{y}" width="{long:.1f}" '
                f'height="{BAR}" rx="2"/>'
            )
            end = LABELS + long + 5
            yield f'<text class="small" x="{end:.1f}" y="{y + BAR - 3}">{value:.2f}</text>'


def _one(scale: float, height: int) -> str:
    x = LABELS + scale
    return f'<line class="one" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 6}"/>'
