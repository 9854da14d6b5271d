"""Pictures of a conversion's report, as SVG: how far elements are off, and where the time went.

Counts are drawn on a logarithmic scale, or the few elements that are far off would not be seen.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import log10

from serve.workbench.conversion.report import ConversionStage, OutputError

_BIN, _GAP = 42, 4  # widths in the picture's own units, which scale with the page
_LEFT, _TOP, _HEIGHT, _FOOT = 52, 22, 110, 40
_ROW, _NAME, _BARS, _TIME = 22, 150, 330, 90
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def histogram_svg(error: OutputError, limit: float | None = None) -> str:
    """Bars for the counts between powers of ten, with the limit as a line; empty without counts.

    `limit`: of error / scale. Bins that lie above it wholly are drawn in another colour.
    """
    if not any(error.histogram):
        return ""
    width = _LEFT + _BIN * len(error.histogram) + 8
    height = _TOP + _HEIGHT + _FOOT
    return "".join(
        (
            f'<svg role="img" viewBox="0 0 {width} {height}" '
            f'aria-label="{escape(spoken(error), quote=True)}">',
            *_grid(max(error.histogram), width),
            *_bars(error, limit),
            *_axis(error, width),
            *(() if limit is None else _limit(error, limit)),
            "</svg>",
        )
    )


def _grid(most: int, width: int) -> Iterator[str]:
    """A line for each power of ten, no more than five."""
    powers = range(0, int(log10(most)) + 1, max(1, int(log10(most)) // 4))
    for power in powers:
        y = _TOP + _HEIGHT - _tall(10**power, most)
        yield f'<line class="grid" x1="{_LEFT}" x2="{width - 8}" y1="{y}" y2="{y}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{y + 4}">{power_of_ten(power)}</text>'
    middle = _TOP + _HEIGHT / 2
    yield f'<text x="10" y="{middle}" transform="rotate(-90 10 {middle})">elements</text>'


def _bars(error: OutputError, limit: float | None) -> Iterator[str]:
    most = max(error.histogram)
    for place, count in enumerate(error.histogram):
        if count:
            lowest = 10.0 ** error.edges[place - 1] if place else 0.0
            kind = ' class="over"' if limit is not None and lowest >= limit else ""
            height = _tall(count, most)
            yield (
                f'<rect{kind} x="{_LEFT + place * _BIN + _GAP / 2}" y="{_TOP + _HEIGHT - height}" '
                f'width="{_BIN - _GAP}" height="{height}"><title>{count:,} elements: '
                f"{_span(error, place)}</title></rect>"
            )


def _axis(error: OutputError, width: int) -> Iterator[str]:
    base = _TOP + _HEIGHT
    yield f'<line class="axis" x1="{_LEFT}" x2="{width - 8}" y1="{base}" y2="{base}"/>'
    for place, power in enumerate(error.edges):
        x = _LEFT + (place + 1) * _BIN
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{base}" y2="{base + 4}"/>'
        yield f'<text x="{x}" y="{base + 17}">{power_of_ten(power)}</text>'
    yield f'<text x="{(_LEFT + width) / 2}" y="{base + 34}">error / scale of the output</text>'


def _limit(error: OutputError, limit: float) -> Iterator[str]:
    """Between the powers of ten in proportion to the logarithm."""
    power = log10(limit) if limit > 0 else error.edges[0] - 1
    x = _LEFT + min(max(power - error.edges[0] + 1, 0), len(error.histogram)) * _BIN
    side = "end" if x > _LEFT + _BIN * len(error.histogram) / 2 else "start"
    near = x - 5 if side == "end" else x + 5
    yield f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{_TOP + _HEIGHT}"/>'
    yield f'<text class="{side}" x="{near:.1f}" y="14">limit {limit:.2g}</text>'


def _tall(count: int, most: int) -> float:
    """The height of a bar: something for one element, all of it for the most."""
    return round(_HEIGHT * (log10(count) + 0.3) / (log10(most) + 0.3), 1)


def power_of_ten(power: int) -> str:
    """`10⁻⁹`, and 1 for the power of zero."""
    return f"10{str(power).translate(_SUPERSCRIPTS)}" if power else "1"


def _span(error: OutputError, place: int) -> str:
    if place == 0:
        return f"below {power_of_ten(error.edges[0])}"
    if place == len(error.edges):
        return f"{power_of_ten(error.edges[-1])} or more"
    return f"{power_of_ten(error.edges[place - 1])} to {power_of_ten(error.edges[place])}"


def _reach(error: OutputError, place: int) -> str:
    """Which errors a bin of the histogram holds; the last one is open."""
    is_last = place == len(error.edges)
    return f"above 1e{error.edges[-1]}" if is_last else f"up to 1e{error.edges[place]}"


def spoken(error: OutputError) -> str:
    """The histogram in words, for those who cannot see it."""
    told = (
        f"{count} {_reach(error, place)}" for place, count in enumerate(error.histogram) if count
    )
    return f"elements of {error.name} by relative error: {', '.join(told)}"


def times_svg(stages: Sequence[ConversionStage], texts: Sequence[str]) -> str:
    """A bar for each stage, in proportion to its time; empty without stages."""
    longest = max((each.seconds for each in stages), default=0.0)
    if not longest:
        return ""
    width, height = _NAME + _BARS + _TIME, _ROW * len(stages)
    parts = [f'<svg role="img" viewBox="0 0 {width} {height}" aria-label="seconds per stage">']
    for place, (stage, text) in enumerate(zip(stages, texts, strict=True)):
        y = place * _ROW
        long = max(round(_BARS * stage.seconds / longest, 1), 1)
        parts.append(
            f'<text class="end" x="{_NAME - 8}" y="{y + 15}">{escape(text)}</text>'
            f'<rect x="{_NAME}" y="{y + 4}" width="{long}" height="{_ROW - 8}"></rect>'
            f'<text class="start" x="{_NAME + long + 6}" y="{y + 15}">{stage.seconds:.2f} s</text>'
        )
    return "".join((*parts, "</svg>"))
