"""The frame around a page's parts."""

from collections.abc import Iterable
from html import escape

from serve.pages.style import STYLE

_ALONE = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, parts: Iterable[str], *, style: str = "") -> str:
    """A whole page; `parts` are HTML already, `title` is a text. `style` is added to the common."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_ALONE}">',
            f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>",
            "",
        )
    )


def section(title: str, body: str) -> str:
    """A part with its heading; nothing when `body` is empty."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""
