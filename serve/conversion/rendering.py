"""The report of a conversion for people: one page that needs nothing else, and no script.

Everything that comes from the model or from people is escaped. Histograms are drawn as SVG: how
many elements are off by how much, in powers of ten of the output's own scale.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from serve.conversion.report import OutputError, Report, StepResult

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #3b76c4; --bad: #c0392b; --good: #2e8b57 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top }
code, pre { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
pre { white-space: pre-wrap; border: 1px solid var(--line); padding: .6rem }
.good { color: var(--good) } .bad { color: var(--bad) } svg rect { fill: var(--bar) }
svg text { font: 10px system-ui, sans-serif; fill: currentColor; text-anchor: middle }
"""
_BAR, _GAP, _HEIGHT, _FOOT = 26, 3, 60, 16  # pixels of a histogram
_MOST_OPERATORS = 40


def render_html(report: Report) -> str:
    """The whole page."""
    name = str(report.source.get("name", "")) or report.request.source
    title = f"Conversion of {name}"
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>{_verdict(report)}</p>",
            _section("The gate", _steps(report.steps)),
            *(_outputs(step) for step in report.steps if step.outputs),
            _section("Warnings", _list(report.warnings) if report.warnings else ""),
            _section("Source", _facts(report.source)),
            _section("Model", _facts(report.model)),
            _section("Time and memory", _stages(report)),
            _section("Versions", _facts(report.versions)),
            _section("Once more", f"<pre>{escape(report.command)}</pre>"),
            "</body></html>",
            "",
        )
    )


def _verdict(report: Report) -> str:
    batches = "rows may be batched" if report.is_batched else "rows are not batched"
    if report.passed:
        return f'<strong class="good">Passed.</strong> {batches}.'
    return '<strong class="bad">Refused.</strong> Nothing was published.'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _steps(steps: Sequence[StepResult]) -> str:
    rows = (
        (
            escape(str(step.step)),
            '<span class="good">passed</span>'
            if step.passed
            else f'<span class="bad">refused</span> <code>{escape(step.code)}</code>',
            escape(step.summary),
        )
        for step in steps
    )
    return _table(("Step", "Verdict", "What was seen"), rows)


def _outputs(step: StepResult) -> str:
    rows = (
        (
            f"<code>{escape(each.name)}</code>",
            number(each.worst),
            number(each.relative),
            number(each.excess),
            "" if each.top1 is None else share(each.top1),
            str(each.elements),
            histogram_svg(each),
        )
        for each in step.outputs
    )
    heads = (
        "Output",
        "Worst error",
        "of its scale",
        "of what is allowed",
        "Same top-1",
        "Elements",
        "Elements by error / scale",
    )
    return _section(f"Errors by output: {step.step}", _table(heads, rows))


def histogram_svg(error: OutputError) -> str:
    """Bars for the counts, each with its upper edge as a power of ten; empty without counts."""
    counts, most = error.histogram, max(error.histogram, default=0)
    if not most:
        return ""
    step = _BAR + _GAP
    parts = [
        f'<svg role="img" width="{step * len(counts)}" height="{_HEIGHT + _FOOT}" '
        f'aria-label="{escape(spoken(error), quote=True)}">'
    ]
    for place, count in enumerate(counts):
        height = round(_HEIGHT * count / most) if count else 0
        height = max(height, 1) if count else 0
        parts.append(
            f'<rect x="{place * step}" y="{_HEIGHT - height}" width="{_BAR}" height="{height}">'
            f"<title>{count}</title></rect>"
            f'<text x="{place * step + _BAR / 2}" y="{_HEIGHT + 12}">{edge(error, place)}</text>'
        )
    return "".join((*parts, "</svg>"))


def edge(error: OutputError, place: int) -> str:
    """Up to which error a bin of the histogram reaches; the last one is open."""
    return f"1e{error.edges[place]}" if place < len(error.edges) else "more"


def spoken(error: OutputError) -> str:
    """The histogram in words, for those who cannot see it."""
    told = (
        f"{count} up to {edge(error, place)}"
        for place, count in enumerate(error.histogram)
        if count
    )
    return f"elements of {error.name} by error: {', '.join(told)}"


def number(value: float) -> str:
    """Three digits: `1.23e-06`."""
    return f"{value:.3g}"


def share(value: float) -> str:
    """`99.95 %`; 100 % only for all."""
    text = f"{value * 100:.2f}".rstrip("0").rstrip(".")
    return "99.99 %" if text == "100" and value < 1 else f"{text} %"


def _stages(report: Report) -> str:
    rows = [(escape(each.name), f"{each.seconds:.2f} s") for each in report.stages]
    total = sum(each.seconds for each in report.stages)
    rows.append(("all", f"{total:.2f} s"))
    peak = f"<p>At most {report.peak_memory / 1e6:.0f} MB of memory.</p>"
    return peak + _table(("Stage", "Time"), rows)


def _facts(facts: Mapping[str, Any]) -> str:
    rows = ((escape(str(name)), _value(value)) for name, value in facts.items())
    return _table(("", ""), rows)


def _value(value: Any) -> str:
    """A fact in a cell; tensors by name, type and shape."""
    if isinstance(value, Mapping):
        shown = [f"{name}: {_plain(each)}" for name, each in list(value.items())[:_MOST_OPERATORS]]
        return escape(", ".join(shown))
    if isinstance(value, list | tuple):
        return _list(_plain(each) for each in value[:_MOST_OPERATORS])
    return escape(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, Mapping) and {"name", "datatype", "shape"} <= value.keys():
        return f"{value['name']} {value['datatype']} {value['shape']}"
    return str(value)


def _list(words: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(word)}</li>" for word in words) + "</ul>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    shown = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    return f"<table>{shown}<tbody>{body}</tbody></table>"
