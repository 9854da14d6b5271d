"""Marks of what happened during a run: lines down through a picture, with words or numbers above.

Words are flags: each hangs on its line, and the lines of later marks end below it. Where they do
not fit, and on a telephone, marks are numbered, and told below the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations, product

from serve.workbench.loadtest.reports.drawing_frame import Scale
from serve.workbench.loadtest.reports.page_words import bare

_LETTER = 6.0  # the width of a letter of a mark, in pixels
_NARROWEST = 600.0  # how wide a picture is at least where marks are told inside it
_LINE = 15.0  # from one line of words to the next
_MOST_LINES, _MOST_MARKS = 4, 6

Marks = Sequence[tuple[float, str]]
"""When, in seconds, and what."""

Places = Sequence[tuple[int, bool]]
"""The line of each mark's words above a picture, from below, and whether they stand left of it."""


def room_above(places: Places | None) -> float:
    """How high the words of marks are, or their numbers."""
    return _LINE * (1 + max((line for line, _ in places or ()), default=0))


def marks_placed(marks: Marks, most: float) -> tuple[tuple[int, bool], ...] | None:
    """The line of each mark's words above a picture, and whether they stand left of it.

    None where they do not fit: then marks are numbered, and told below.
    """
    if len(marks) > _MOST_MARKS:
        return None
    flags = [_flag(at / most, text) for at, text in marks]
    if any(each.begin < -_NARROWEST / 10 for each in flags):
        return None
    for lines in range(1, _MOST_LINES + 1):
        for chosen in product(range(lines), repeat=len(flags)):
            placed = list(zip(flags, chosen, strict=True))
            if not any(_collide(one, other) for one, other in combinations(placed, 2)):
                return tuple((line, flag.is_left) for flag, line in placed)
    return None


@dataclass(frozen=True, slots=True)
class _Flag:
    """A mark and where its words begin and end, in pixels of the narrowest picture."""

    at: float
    begin: float
    end: float
    is_left: bool


def _flag(place: float, text: str) -> _Flag:
    at = min(max(place, 0.0), 1.0) * _NARROWEST
    long = len(text) * _LETTER + 12
    is_left = at + long > _NARROWEST + 24
    return _Flag(at, at - long, at, True) if is_left else _Flag(at, at, at + long, False)


def _collide(one: tuple[_Flag, int], other: tuple[_Flag, int]) -> bool:
    """Whether the words of two marks, or the words of one and the line of the other, do."""
    for (flag, line), (words, height) in ((one, other), (other, one)):
        if height <= line and words.begin < flag.at < words.end:
            return True
    (a, a_line), (b, b_line) = one, other
    return a_line == b_line and a.begin < b.end and b.begin < a.end


def mark_lines(
    marks: Marks,
    places: Sequence[tuple[int, bool]] | None,
    x: Scale,
    top: float,
    height: float,
    *,
    is_numbered: bool = True,
) -> Iterator[str]:
    """A line down for each mark; above it its number, or its words where there is room."""
    for place, (when, text) in enumerate(marks):
        at = f"{x.at(when) * 100:.2f}%"
        line, is_left = places[place] if places else (0, False)
        begin = top - _LINE * (line + 1) + 4 if is_numbered else top
        yield (
            f'<line class="mark" x1="{at}" x2="{at}" y1="{begin:g}" y2="{top + height:g}">'
            f"<title>{moment(when)}: {escape(text)}</title></line>"
        )
        if is_numbered:
            kind = "mark number narrow" if places else "mark number"
            yield f'<text class="{kind}" x="{at}" y="{top - 4:g}">{place + 1}</text>'
        if is_numbered and places:
            side_of, shift = ("end", -5) if is_left else ("start", 5)
            yield (
                f'<text class="mark wide {side_of}" x="{at}" dx="{shift}" '
                f'y="{begin + 9:g}">{escape(text)}</text>'
            )


def moment(at: float) -> str:
    """When a mark is: `0 s`, `60.5 s`."""
    return bare(f"{at:.1f}") + "\N{NO-BREAK SPACE}s"
