"""The frame around a page's parts.

How the page of a report looks: by day and by night, on paper and on a telephone.
"""

from collections.abc import Iterable
from html import escape

# --- how the page of a report looks ---------------------------------------------------------------


STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5c6675; --paper: #f5f6f8; --card: #fff;
  --line: #dde1e7; --bar: #3f72af; --good: #1f7a4d; --bad: #b3261e; --wash: #e8f3ed;
  --blush: #fbeae8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b5; --paper: #14181e;
  --card: #1c222b; --line: #323a46; --bar: #6fa0da; --good: #63c795; --bad: #f08a80;
  --wash: #18302a; --blush: #3a2222 } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere }
h2 { font-size: 1.05rem; margin: 0 0 .6rem } h3 { font-size: .95rem; margin: 0; font-weight: 600;
  overflow-wrap: anywhere }
section, .verdict { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 1rem 1.1rem; margin: 0 0 1rem }
.verdict { border-left: 6px solid var(--good); background: var(--wash) }
.verdict.bad { border-left-color: var(--bad); background: var(--blush) }
.verdict p { margin: .2rem 0 0; overflow-wrap: anywhere } .verdict strong { font-size: 1.15rem }
.good { color: var(--good) } .bad strong, span.bad { color: var(--bad) }
.soft { color: var(--soft) } td .good, td .bad { white-space: nowrap }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem;
  margin: 0 0 1rem }
dl.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem }
dt { font-size: .8rem; color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
dl.tiles dd { font-size: 1rem; font-weight: 600; font-variant-numeric: tabular-nums }
dl.numbers { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; margin: .3rem 0 .6rem }
.table { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere } tr:last-child > td { border-bottom: 0 }
th { font-size: .8rem; font-weight: 500; color: var(--soft) } td:first-child { min-width: 7rem }
figure { margin: 0 0 1.4rem } figure:last-child { margin: 0 }
code, pre { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
pre { white-space: pre-wrap; margin: 0; background: var(--paper); border-radius: 6px;
  padding: .7rem .8rem }
ul { margin: 0; padding-left: 1.1rem }
svg { display: block; width: 100%; max-width: 36rem; height: auto } svg rect { fill: var(--bar) }
svg .over { fill: var(--bad) } svg text { font: 11px system-ui, sans-serif; fill: var(--soft);
  text-anchor: middle } svg text.end { text-anchor: end } svg text.start { text-anchor: start }
svg .grid { stroke: var(--line) } svg .axis { stroke: var(--soft) }
svg .limit { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 4 3 }
"""


# --- the frame around a page's parts --------------------------------------------------------------


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
