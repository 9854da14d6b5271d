"""The page of a load test: one file, no script, everything from outside escaped.

The verdict comes first, and before it whether the generator was the limit: then the rest says
little. A report of several runs tells what they say together, then each of them.

What a page says first: whose numbers these are, and what was met.

What several runs of a report say together: a sweep, and all of them in one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import isnan

from serve.pages.frame import page, section
from serve.workbench.loadtest.reports import summary
from serve.workbench.loadtest.reports.bottleneck import bottleneck
from serve.workbench.loadtest.reports.comparison import Ratio
from serve.workbench.loadtest.reports.drawing_sweep import sweep_svg
from serve.workbench.loadtest.reports.findings import findings
from serve.workbench.loadtest.reports.objectives import MEASURES, JudgedObjective, Unit, judge_run
from serve.workbench.loadtest.reports.page_compared import (
    compared,
    forest,
    pair,
    ratios_box,
    versions_words,
    when_begun,
)
from serve.workbench.loadtest.reports.page_hints import hints_part
from serve.workbench.loadtest.reports.page_plan import generator_part, plan_part
from serve.workbench.loadtest.reports.page_run import (
    RunCourse,
    errors_part,
    over_time_part,
    percentiles_part,
    rows_part,
    run_tiles,
)
from serve.workbench.loadtest.reports.page_served import (
    problems_part,
    readings_part,
    routes_part,
    served_by,
    time_part,
)
from serve.workbench.loadtest.reports.page_words import (
    NONE,
    figure,
    listed,
    number,
    plural,
    seconds,
    share,
    table,
)
from serve.workbench.loadtest.reports.report import LoadReport, LoadRun
from serve.workbench.loadtest.reports.style import STYLE
from serve.workbench.loadtest.reports.summary import SummaryRow

# --- what several runs of a report say together ---------------------------------------------------


_SWEEP = "The whiskers are 95 % intervals."


def sweep_figure(report: LoadReport) -> str:
    sweep = report.sweep
    if sweep is None:
        return ""
    kinds: list[str] = []
    if len(report.runs) == len(sweep.xs):
        passed = [all(each.passed for each in judge_run(run)) for run in report.runs]
        if any(run.objective for run in report.runs):
            kinds = ["good" if each else "bad" for each in passed]
    svg = sweep_svg(
        (sweep.x, sweep.y), sweep.xs, sweep.ys, sweep.lows, sweep.highs, kinds=kinds or None
    )
    entries = [("good dot", "objectives met"), ("bad dot", "not met")] if kinds else []
    note = _SWEEP if sweep.lows and sweep.highs else ""
    return figure(f"{sweep.y} by {sweep.x}", entries, svg, note)


def runs_table(runs: Sequence[LoadRun]) -> str:
    """All runs below each other; two groups of them (`direct, round 1`) beside each other."""
    sides = _sides(runs)
    if sides:
        return _beside(sides)
    rows = [_run_cells(run) for run in runs]
    heads = (
        "Run",
        "Intended/s",
        "Correct/s",
        "Correct",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "Objectives",
    )
    has_objectives = any(run.objective for run in runs)
    shown = rows if has_objectives else [row[:-1] for row in rows]
    return table(heads if has_objectives else heads[:-1], shown, words=(0, 8))


def _run_cells(run: LoadRun) -> tuple[str, ...]:
    row = summary.total(run)
    missed = [str(each.condition) for each in judge_run(run) if not each.passed]
    met = '<span class="good">✓ met</span>' if run.objective else NONE
    told = f'<span class="bad">✗</span> <code>{escape(", ".join(missed))}</code>' if missed else met
    times = row.latency
    return (
        escape(run.label),
        number(summary.intended_rate(run)) if run.is_open else NONE,
        number(row.rate),
        share(row.right / row.calls) if row.calls else NONE,
        *map(seconds, (times.p50, times.p90, times.p99, times.p999)),
        told,
    )


def _sides(runs: Sequence[LoadRun]) -> dict[str, dict[str, LoadRun]]:
    """Two groups of runs that differ in the first word of their labels, or nothing."""
    found: dict[str, dict[str, LoadRun]] = {}
    for run in runs:
        side, _, rest = run.label.partition(" ")
        found.setdefault(side.rstrip(","), {})[rest] = run
    groups = [tuple(each) for each in found.values()]
    is_paired = len(groups) == 2 and len(groups[0]) > 1 and set(groups[0]) == set(groups[1])
    return found if is_paired else {}


def _beside(sides: dict[str, dict[str, LoadRun]]) -> str:
    """A row for each round, and for each measure a column of either side."""
    (first, left), (second, right) = sorted(sides.items())
    names = ("Correct/s", "Correct", "p50", "p90", "p99")
    groups = "".join(f'<th scope="colgroup" colspan="2" class="pair">{name}</th>' for name in names)
    two = "".join(f'<th scope="col" class="n">{escape(each)}</th>' for each in (first, second))
    rows = []
    for name, run in left.items():
        pairs = zip(_measures(run), _measures(right[name]), strict=True)
        cells = "".join(f'<td class="n">{each}</td>' for pair in pairs for each in pair)
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return (
        '<div class="table" tabindex="0" role="region" aria-label="runs"><table><thead>'
        f'<tr><td rowspan="2"></td>{groups}</tr><tr>{two * len(names)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _measures(run: LoadRun) -> tuple[str, ...]:
    row = summary.total(run)
    times = row.latency
    return (
        number(row.rate),
        share(row.right / row.calls) if row.calls else NONE,
        *map(seconds, (times.p50, times.p90, times.p99)),
    )


# --- what a page says first -----------------------------------------------------------------------


def limit_box(limits: Sequence[str]) -> str:
    """Told before everything else: whose numbers these are."""
    told = "".join(f"<p>{escape(each)}</p>" for each in limits)
    return (
        '<div class="verdict doubt"><strong>These numbers may reflect the load generator, not the '
        "server.</strong>"
        f"{told}</div>"
        if told
        else ""
    )


def verdict_box(report: LoadReport, judged: Sequence[JudgedObjective], words: str) -> str:
    passed = report.passed
    if passed is None and judged:
        passed = all(each.passed for each in judged)
    if passed is None:
        return (
            '<div class="verdict calm"><strong>Measured.</strong> No objective was set.'
            f"<p>{escape(words)}</p></div>"
        )
    kind, strong = ("", "Passed.") if passed else (" bad", "Failed.")
    colour = ' class="good"' if passed else ""
    missed = sum(not each.passed for each in judged)
    told = f" {missed} of {plural(len(judged), 'objective')} not met." if missed else ""
    more = "" if judged else f"<p>{escape(words)}</p>"
    return (
        f'<div class="verdict{kind}"><strong{colour}>{strong}</strong>{told}'
        f"{told_of(judged)}{more}</div>"
    )


def told_of(judged: Sequence[JudgedObjective]) -> str:
    """Each condition with what was measured."""
    told = "".join(
        f'<li><span class="{"good" if each.passed else "bad"}">{"✓" if each.passed else "✗"}</span>'
        f" <code>{escape(str(each.condition))}</code>: {_value(each)}</li>"
        for each in judged
    )
    return f'<ul class="judged">{told}</ul>' if told else ""


def _value(judged: JudgedObjective) -> str:
    if isnan(judged.value):
        return "could not be measured"
    unit = MEASURES[judged.condition.name].unit
    if unit is Unit.TIME:
        return seconds(judged.value)
    return share(judged.value) if unit is Unit.SHARE else f"{number(judged.value)}/s"


def in_words(run: LoadRun, row: SummaryRow) -> str:
    """A run in one sentence; `row` are all its calls."""
    if not row.calls:
        return "No calls were made."
    asked = f" of {number(summary.intended_rate(run))}/s intended" if run.is_open else ""
    return (
        f"{number(row.rate)}/s correct{asked}, p50 {seconds(row.latency.p50)}, p99 "
        f"{seconds(row.latency.p99)}"
    )


# --- the page of a load test ----------------------------------------------------------------------


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
