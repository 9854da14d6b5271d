"""Two reports beside each other: a forest of ratios, and their runs on the same scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from serve.workbench.loadtest.reports import summary
from serve.workbench.loadtest.reports.comparison import Ratio, verdict
from serve.workbench.loadtest.reports.drawing_sweep import ratio_axis_svg, ratio_scale, ratio_svg
from serve.workbench.loadtest.reports.page_run import RunCourse, run_tiles, side_by_side
from serve.workbench.loadtest.reports.page_words import number, seconds, share, table
from serve.workbench.loadtest.reports.report import LoadReport, LoadRun

_KINDS = {"faster": "good", "better": "good", "slower": "bad", "worse": "bad"}
_NAMES = {
    "rate": "correct responses/s",
    "right": "share of correct responses",
    "mean": "mean latency",
}
_FOREST = "After ÷ before, with 95 % intervals. An interval that contains 1 shows no difference."


def ratios_box(ratios: Sequence[Ratio]) -> str:
    """The comparison in a sentence or two."""
    groups: dict[str, list[str]] = {}
    for each in ratios:
        groups.setdefault(verdict(each), []).append(_NAMES.get(each.name, each.name))
    same = groups.pop("no difference seen", [])
    told = [f"{', '.join(names)}: {word}" for word, names in groups.items()]
    kinds = {_KINDS.get(word, "calm") for word in groups}
    one = next(iter(kinds)) if len(kinds) == 1 else "mixed" if kinds else "calm"
    box = {"good": "", "bad": " bad", "mixed": " doubt"}.get(one, " calm")
    strong = "; ".join(told) or (
        "No difference seen." if ratios else "The reports have nothing in common to compare."
    )
    more = f"<p>No difference seen in {escape(', '.join(same))}.</p>" if same and told else ""
    return f'<div class="verdict{box}"><strong>{escape(strong)}</strong>{more}</div>'


def forest(ratios: Sequence[Ratio]) -> str:
    """A row for each ratio: name, picture, numbers and words."""
    if not ratios:
        return ""
    scale = ratio_scale([each for one in ratios for each in (one.ratio, one.low, one.high)])
    rows = "".join(
        _forest_row(each, ratio_svg(each.ratio, each.low, each.high, scale, kind))
        for each in ratios
        if (kind := _KINDS.get(verdict(each), "calm"))
    )
    return (
        '<div class="table"><table class="forest"><thead><tr><th scope="col">Measure</th>'
        '<th scope="col">Ratio</th><th scope="col">After ÷ before</th></tr></thead><tbody>'
        f'{rows}<tr><td></td><td class="strip">{ratio_axis_svg(scale)}</td><td></td></tr></tbody>'
        f'</table></div><p class="soft">{escape(_FOREST)}</p>'
    )


def _forest_row(ratio: Ratio, svg: str) -> str:
    word = verdict(ratio)
    values = f"{_measured(ratio, ratio.before)} → {_measured(ratio, ratio.after)}"
    within = f"({number(ratio.low)} to {number(ratio.high)})"
    return (
        f'<tr><th scope="row">{escape(_NAMES.get(ratio.name, ratio.name))}'
        f'<small class="soft">{escape(values)}</small></th><td class="strip">{svg}</td>'
        f'<td><strong>× {number(ratio.ratio)}</strong> <span class="span">{within}</span>'
        f'<small class="{_KINDS.get(word, "soft")}">{escape(word)}</small></td></tr>'
    )


def _measured(ratio: Ratio, value: float) -> str:
    if ratio.name == "rate":
        return f"{number(value)}/s"
    return share(value) if ratio.name == "right" else seconds(value)


def pair(names: tuple[str, str], before: LoadRun, after: LoadRun) -> str:
    """Two runs in two columns, drawn on the same scales."""
    figures = side_by_side(RunCourse.of(before), RunCourse.of(after))
    columns = (
        f'<div><h2>{when} <span class="soft">{escape(name)}</span></h2>'
        f"{run_tiles(run, summary.total(run))}"
        f"<section>{drawn}</section></div>"
        for when, name, run, drawn in zip(
            ("Before:", "After:"), names, (before, after), figures, strict=True
        )
    )
    return f'<div class="two">{"".join(columns)}</div>'


def compared(before: LoadReport, after: LoadReport) -> str:
    rows = (
        (name, *(escape(told(each)) for each in (before, after)))
        for name, told in (
            ("Report", lambda each: each.name),
            ("Started", lambda each: when_begun(each.begun)),
            ("Model", lambda each: each.model),
            ("Command", lambda each: each.command),
            ("Machine", lambda each: each.machine),
            ("Versions", lambda each: versions_words(each.versions)),
        )
    )
    return table(("", "Before", "After"), rows, words=(0, 1, 2))


def when_begun(begun: str) -> str:
    """`2026-11-22 10:15:00 UTC` for `2026-11-22T10:15:00+00:00`."""
    return begun.replace("T", " ").replace("+00:00", " UTC").replace("Z", " UTC")


def versions_words(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}\N{NO-BREAK SPACE}{each}" for name, each in facts.items())
