"""Numbers, tables and small pieces of a page, for people.

Spaces inside a number and before its unit do not break. What is not a number is told as a dash,
wherever it comes from. Pieces take texts, and escape them, unless they say that they take HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite

from serve.workbench.loadtest.reports.amounts import figures, share_text, time_text

NONE = "–"
_THIN = "\N{NARROW NO-BREAK SPACE}"
_SPACE = "\N{NO-BREAK SPACE}"
_BYTES = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None) -> str:
    """Three digits: `0.012`, `12.3`, `12 345`."""
    if value is None or not isfinite(value):
        return NONE
    return count(value) if abs(value) >= 1000 else figures(value)


def count(value: float | None) -> str:
    """All digits of a whole number: `12 345`."""
    return NONE if value is None or not isfinite(value) else f"{value:,.0f}".replace(",", _THIN)


def seconds(value: float | None) -> str:
    """`12 µs`, `4.56 ms`, `1.20 s`, `12.0 min`."""
    if value is None or not isfinite(value):
        return NONE
    return ("−" if value < 0 else "") + time_text(abs(value)).replace(" ", _SPACE)


def share(value: float | None) -> str:
    """`99.95 %`; 100 % only for all, 0 % only for none."""
    return NONE if value is None else share_text(value).replace(" ", _SPACE)


def size(value: float | None) -> str:
    """Bytes in steps of a thousand: `944 MB`."""
    if value is None or not isfinite(value):
        return NONE
    place = 0
    while abs(value) >= 999.5 and place + 1 < len(_BYTES):
        value, place = value / 1000, place + 1
    return f"{number(value) if place else count(value)}{_SPACE}{_BYTES[place]}"


def reading(value: float | None, unit: str) -> str:
    """A value in whatever unit somebody counts in."""
    known = {"s": seconds, "seconds": seconds, "bytes": size, "B": size, "share": share}
    if unit in known:
        return known[unit](value)
    told = number(value)
    return told if told == NONE or unit in _COUNTS else f"{told}{_SPACE}{unit}"


_COUNTS = ("", "1", "calls", "requests")


def bare(text: str) -> str:
    """A number without zeros at the end of its fraction, for an axis: `2.5 ms`, `0`."""
    short = re.sub(r"\.(\d*?)0+(?!\d)", lambda found: f".{found[1]}" if found[1] else "", text)
    return "0" if re.fullmatch(r"0\D*", short) else short


def plural(many: int, word: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count(many)} {word}{'' if many == 1 else 's'}"


# --- pieces of a page ----------------------------------------------------------------------------


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Iterable[int] = (0,)
) -> str:
    """A table; cells are HTML already, the first of a row is its heading.

    Columns are numbers, aligned to the right, except those in `words`. Nothing without rows.
    """
    text = frozenset(words)

    def kind(place: int) -> str:
        return "" if place in text else ' class="n"'

    head = "".join(
        f'<th scope="col"{kind(place)}>{escape(each)}</th>' for place, each in enumerate(heads)
    )
    body = "".join(
        f'<tr><th scope="row"{kind(0)}>{row[0]}</th>'
        + "".join(f"<td{kind(place)}>{cell}</td>" for place, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    if not body:
        return ""
    return (
        '<div class="table" tabindex="0" role="region" aria-label="table"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def tiles(pairs: Mapping[str, str]) -> str:
    """What people ask first, in a few words each; texts, escaped here."""
    return _named("tiles", pairs)


def facts(pairs: Mapping[str, str]) -> str:
    """Names and values, one below the other; texts, escaped here. Empty values are left out."""
    return _named("facts", pairs)


def long_facts(pairs: Mapping[str, str]) -> str:
    """The same with long texts, each over the whole width."""
    return _named("facts wide", pairs)


def _named(kind: str, pairs: Mapping[str, str]) -> str:
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in pairs.items()
        if text
    )
    return f'<dl class="{kind}">{shown}</dl>' if shown else ""


def listed(words: Iterable[str]) -> str:
    """A list of texts; nothing without any."""
    shown = "".join(f"<li>{escape(word)}</li>" for word in words)
    return f"<ul>{shown}</ul>" if shown else ""


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What the colours of a picture mean: (class, text)."""
    shown = "".join(f'<li><i class="{kind}"></i>{escape(text)}</li>' for kind, text in entries)
    return f'<ul class="legend">{shown}</ul>'


def figure(title: str, entries: Iterable[tuple[str, str]], svg: str, note: str = "") -> str:
    """A picture with its title, legend and caption; nothing without a picture."""
    if not svg:
        return ""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    shown = list(entries)
    foot = f'<figcaption class="soft">{escape(note)}</figcaption>' if note else ""
    return f"<figure>{head}{legend(shown) if shown else ''}{svg}{foot}</figure>"


def speak(text: str) -> str:
    """A text for an attribute, with the spaces that everybody reads aloud alike."""
    return escape(re.sub(r"[\u202f\u00a0]", " ", text), quote=True)
