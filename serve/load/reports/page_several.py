"""What several runs of a report say together: a sweep, and all of them in one table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from serve.load.reports import summary
from serve.load.reports.drawing_sweep import sweep_svg
from serve.load.reports.objectives import judge_run
from serve.load.reports.page_words import NONE, figure, number, seconds, share, table
from serve.load.reports.report import LoadReport, LoadRun

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
