"""What a page says first: whose numbers these are, and what was met."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isnan

from serve.load.reports import summary
from serve.load.reports.objectives import MEASURES, JudgedObjective, Unit
from serve.load.reports.page_words import number, plural, seconds, share
from serve.load.reports.report import LoadReport, LoadRun
from serve.load.reports.summary import SummaryRow


def limit_box(limits: Sequence[str]) -> str:
    """Told before everything else: whose numbers these are."""
    told = "".join(f"<p>{escape(each)}</p>" for each in limits)
    return (
        '<div class="verdict doubt"><strong>These numbers may be the generator’s own.</strong>'
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
    told = f" {plural(missed, 'objective')} of {len(judged)} not met." if missed else ""
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
