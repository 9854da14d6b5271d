"""What a load test came to: a table by protocol and version, the findings, and the same as JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve.cli.output import say, table
from serve.cli.talk import CommandTalk, JsonEvents
from serve.core.errors import CheckFailed

if TYPE_CHECKING:
    from serve.workbench.loadtest.reports.objectives import JudgedObjective
    from serve.workbench.loadtest.reports.report import LoadReport, LoadRun
    from serve.workbench.loadtest.reports.summary import Quantiles, SummaryRow

_HEADS = ("PROTOCOL", "VERSION", "CALLS", "OK/S", "P50", "P90", "P99", "P99.9", "MAX", "FAILED")


def show(talk: CommandTalk, report: "LoadReport", path: Path | None) -> None:
    """The table and the findings on stdout, and on stderr where the report is.

    Programs are told by the last event, see `document`.
    """
    if isinstance(talk, JsonEvents):
        return
    _table(report.runs)
    print()
    for finding in report.findings:
        print(finding)
    if path is not None:
        say(f"  report: {path / 'report.html'}")


def document(report: "LoadReport", path: Path | None) -> dict[str, Any]:
    """For programs: quantiles are in milliseconds, and null where nothing was measured."""
    from serve.workbench.loadtest.reports.objectives import judge_run
    from serve.workbench.loadtest.reports.summary import rows, total

    return {
        "name": report.name,
        "path": None if path is None else str(path),
        "scenario": report.scenario,
        "passed": report.passed,
        "findings": list(report.findings),
        "runs": [
            {
                "label": run.label,
                "judged": [_judged(one) for one in judge_run(run)],
                **_row(total(run)),
                "rows": [_row(row) for row in rows(run)],
                "hints": [asdict(one) for one in run.observed.hints],
            }
            for run in report.runs
        ],
        "sweep": None if report.sweep is None else asdict(report.sweep),
    }


def refusal(report: "LoadReport") -> CheckFailed | None:
    """The error of a report that has not passed: exit status 7."""
    from serve.workbench.loadtest.reports.objectives import judge_run

    if report.passed is not False:
        return None
    missed = [
        f"{run.label}: {one}" if len(report.runs) > 1 else str(one)
        for run in report.runs
        for one in judge_run(run)
        if not one.passed
    ]
    what = "the objective was missed" if missed else "the scenario failed"
    error = CheckFailed(what, missed or report.findings[:2])
    error.code = "objective_missed" if missed else "scenario_failed"
    return error


def with_interruption(runs: "Sequence[LoadRun]", findings: Sequence[str]) -> list[str]:
    """The findings; that a run was ended early stands before all others."""
    said = list(findings)
    for run in runs:
        if "stopped_after" in run.outline:
            after = float(run.outline["stopped_after"])
            said = [one for one in said if one not in run.observed.problems[:1]]
            said.insert(
                0,
                f"The run was interrupted after {after:.1f} of {run.seconds:g} s; calls in flight "
                "at that moment are not counted.",
            )
    return said


def limits(runs: "Sequence[LoadRun]") -> list[str]:
    """A sentence if the generator was the limit of any of them, and not the server."""
    from serve.workbench.loadtest.reports.bottleneck import bottleneck

    found = [(run.label, said) for run in runs if (said := bottleneck(run))]
    if not found:
        return []
    label, said = found[0]
    return [said if len(runs) == 1 else f"In {len(found)} of {len(runs)} runs ({label}, …): {said}"]


def _table(runs: "Sequence[LoadRun]") -> None:
    from serve.workbench.loadtest.reports.summary import rows

    several = len(runs) > 1
    lines = [
        ((run.label,) if several else ()) + cells for run in runs for cells in _lines(rows(run))
    ]
    table(("RUN", *_HEADS) if several else _HEADS, lines)


def _lines(rows: "Iterable[SummaryRow]") -> list[tuple[str, ...]]:
    """A line for each lane, and for each of its versions where it has several."""
    by_lane: dict[str, list[SummaryRow]] = {}
    for row in rows:
        by_lane.setdefault(row.lane, []).append(row)
    lines = []
    for lane, found in by_lane.items():
        whole, *versions = found
        one = versions[0].version if len(versions) == 1 else ""
        lines.append(_line(lane, one or ("all" if versions else "–"), whole))
        if len(versions) > 1:
            lines += [_line(lane, each.version, each) for each in versions]
    return lines


def _line(lane: str, version: str, row: "SummaryRow") -> tuple[str, ...]:
    from serve.workbench.loadtest.reports.amounts import figures, share_text, time_text

    times = row.latency
    shown = (times.p50, times.p90, times.p99, times.p999, times.largest)
    failed = f"{row.failed} ({share_text(row.error_share)})" if row.failed else "0"
    most = ", ".join(f"{name} {count}" for name, count in list(row.errors.items())[:2])
    return (
        lane,
        version,
        str(row.calls),
        figures(row.rate),
        *map(time_text, shown),
        f"{failed}: {most}" if most else failed,
    )


def _row(row: "SummaryRow") -> dict[str, Any]:
    return {
        "lane": row.lane,
        "protocol": row.protocol,
        "version": row.version,
        "calls": row.calls,
        "right": row.right,
        "rate": number(row.rate),
        "rows_rate": number(row.rows_rate),
        "latency_ms": _quantiles(row.latency),
        "service_ms": _quantiles(row.service),
        "errors": dict(row.errors),
    }


def _quantiles(times: "Quantiles") -> dict[str, float | None]:
    return {name: number(value * 1000) for name, value in asdict(times).items() if name != "count"}


def _judged(one: "JudgedObjective") -> dict[str, Any]:
    return {"condition": str(one.condition), "value": number(one.value), "passed": one.passed}


def number(value: float) -> float | None:
    """For JSON, which has no nan."""
    return round(value, 6) if math.isfinite(value) else None
