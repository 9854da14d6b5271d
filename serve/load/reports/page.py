"""The page of a load test: one file, no script, everything from outside escaped.

The verdict comes first, and before it whether the generator was the limit: then the rest says
little. A report of several runs tells what they say together, then each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from serve.load.reports import summary
from serve.load.reports.bottleneck import bottleneck
from serve.load.reports.comparison import Ratio
from serve.load.reports.findings import findings
from serve.load.reports.objectives import judge_run
from serve.load.reports.page_compared import (
    compared,
    forest,
    pair,
    ratios_box,
    versions_words,
    when_begun,
)
from serve.load.reports.page_hints import hints_part
from serve.load.reports.page_plan import generator_part, plan_part
from serve.load.reports.page_run import (
    RunCourse,
    errors_part,
    over_time_part,
    percentiles_part,
    rows_part,
    run_tiles,
)
from serve.load.reports.page_served import (
    problems_part,
    readings_part,
    routes_part,
    served_by,
    time_part,
)
from serve.load.reports.page_several import runs_table, sweep_figure
from serve.load.reports.page_verdict import in_words, limit_box, told_of, verdict_box
from serve.load.reports.page_words import listed, plural
from serve.load.reports.report import LoadReport, LoadRun
from serve.load.reports.style import STYLE
from serve.load.reports.summary import SummaryRow
from serve.pages.frame import page, section


def render(report: LoadReport) -> str:
    """The whole page of a report."""
    runs = report.runs
    body = _single(report, runs[0]) if len(runs) == 1 else _several(report)
    return page(
        report.title or report.name,
        (
            _lead(report),
            *body,
            section("Command", f"<pre>{escape(report.command)}</pre>"),
            section("Environment", _made_with(report)),
        ),
        style=STYLE,
    )


def render_comparison(before: LoadReport, after: LoadReport, ratios: Sequence[Ratio]) -> str:
    """Two reports beside each other: how much slower or faster, then what each has measured."""
    names = (before.name, after.name)
    pairs = list(zip(before.runs, after.runs, strict=False))
    whole = (pair(names, one, other) for one, other in pairs)
    shown = (
        whole
        if len(pairs) < 2
        else (
            _folded(f"{one.label} and {other.label}", "", body, is_open=place == 0)
            for place, ((one, other), body) in enumerate(zip(pairs, whole, strict=True))
        )
    )
    return page(
        f"{before.title or before.name}: before and after",
        (
            ratios_box(ratios),
            section("After compared with before", forest(ratios)),
            *shown,
            section("Compared reports", compared(before, after)),
        ),
        style=STYLE,
    )


# --- one run, or several -------------------------------------------------------------------------


def _single(report: LoadReport, run: LoadRun) -> Iterator[str]:
    limit, total = bottleneck(run), summary.total(run)
    yield limit_box([limit] if limit else [])
    yield verdict_box(report, judge_run(run), in_words(run, total))
    yield run_tiles(run, total)
    yield _findings(report.findings or findings(run), limit)
    yield from _run_parts(run, total)


def _several(report: LoadReport) -> Iterator[str]:
    limits = [bottleneck(run) for run in report.runs]
    labelled = zip(report.runs, limits, strict=True)
    yield limit_box([f"{run.label}: {limit}" for run, limit in labelled if limit])
    first, *others = report.findings or (plural(len(report.runs), "run"),)
    yield verdict_box(report, (), first)
    yield _findings(others, "")
    yield section("Results", sweep_figure(report))
    yield section("Runs", runs_table(report.runs))
    # What was probed before is short: the run that matters is opened.
    longest = max(range(len(report.runs)), key=lambda place: report.runs[place].seconds, default=0)
    for place, (run, limit) in enumerate(zip(report.runs, limits, strict=True)):
        total = summary.total(run)
        body = (
            run_tiles(run, total),
            section("Objectives", told_of(judge_run(run))),
            _findings(findings(run), limit),
            *_run_parts(run, total),
        )
        yield _folded(run.label, in_words(run, total), "".join(body), is_open=place == longest)


def _run_parts(run: LoadRun, total: SummaryRow) -> Iterator[str]:
    """All of a run, but its verdict."""
    course = RunCourse.of(run)
    yield over_time_part(course)
    yield percentiles_part(run)
    yield rows_part(run, total)
    yield errors_part(total)
    yield time_part(run, total)
    yield hints_part(run, course)
    yield readings_part(run, course)
    yield routes_part(run, course)
    yield generator_part(run, course)
    yield problems_part(run)
    yield plan_part(run)
    yield served_by(run)


def _folded(title: str, words: str, body: str, *, is_open: bool) -> str:
    """Content that can be folded away."""
    more = f' <span class="soft">{escape(words)}</span>' if words else ""
    return (
        f"<details{' open' if is_open else ''}><summary><strong>{escape(title)}</strong>{more}"
        f"</summary>{body}</details>"
    )


def _findings(found: Sequence[str], limit: str) -> str:
    """What was noticed; the limit was told above."""
    told = listed(each for each in found if each != limit)
    return section("Findings", told and f'<div class="findings">{told}</div>')


# --- facts ---------------------------------------------------------------------------------------


def _lead(report: LoadReport) -> str:
    """Which model, which scenario, when."""
    told = [
        f"model {report.model}" if report.model else "",
        f"scenario {report.scenario}" if report.scenario else "",
        when_begun(report.begun),
    ]
    return f'<p class="lead soft">{escape(" · ".join(each for each in told if each))}</p>'


def _made_with(report: LoadReport) -> str:
    told = [versions_words(report.versions), report.machine, report.name]
    return "<br>".join(escape(each) for each in told if each)
