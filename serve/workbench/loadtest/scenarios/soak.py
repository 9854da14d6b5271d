"""Soak: a steady rate for long. Does anything grow: memory, latency?

The first quarter is compared with the last one. What a process takes while it warms up is in the
first quarter, as far as that is long enough; so a soak of minutes tells less than one of hours.
"""

from __future__ import annotations

import math
from statistics import fmean, median

from serve.workbench.loadtest.observed import ObservedSeries
from serve.workbench.loadtest.plan import Arrivals
from serve.workbench.loadtest.reports.amounts import share_text, time_text
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import (
    between,
    failed_sentence,
    failures,
    is_stopped,
    p99,
)

_SECONDS = 600.0
_RATE = 50.0
_WARM_UP = 5.0
_GROWTH = 0.10  # of the memory, which may be
_GROWTH_BYTES = 16e6  # below this, growth is noise
_PARTS = 8  # of a quarter
_SLOWER = 1.5  # times the p99 of the first quarter, which may be
_SLOWER_SECONDS = 0.005  # below this, it is noise


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """One long run."""
    plan = stage.plan(
        arrivals=Arrivals(stage.rate or _RATE),
        seconds=stage.seconds or _SECONDS,
        warm_up=_WARM_UP,
    )
    run = await stage.perform(plan, label="soak", objective=stage.objective)
    windows = list(run.record.windows.values())
    grown = [found for found in map(growth, run.observed.series) if found]
    slower, sentence = slowdown(run)
    findings = [
        *(text for is_bad, text in grown if is_bad),
        sentence,
        failed_sentence(windows),
        *(text for is_bad, text in grown if not is_bad),
    ]
    passed = not slower and not failures(windows) and not any(is_bad for is_bad, _ in grown)
    return ScenarioOutcome(
        "Soak: a long run at a steady rate",
        (run,),
        tuple(filter(None, findings)),
        None if is_stopped(run) else passed,
    )


def growth(series: ObservedSeries) -> tuple[bool, str] | None:
    """Of a memory: whether it grew too much, and a sentence; None for every other reading."""
    values = [
        (at, value)
        for at, value in zip(series.seconds, series.values, strict=True)
        if value is not None
    ]
    if series.name != "memory" or series.group == "gpu" or len(values) < 8:
        return None
    quarter = (values[-1][0] - values[0][0]) / 4
    first = fmean(value for at, value in values if at <= values[0][0] + quarter)
    last = fmean(value for at, value in values if at >= values[-1][0] - quarter)
    is_bad = last - first > max(_GROWTH * first, _GROWTH_BYTES)
    moved = "grew" if last >= first else "shrank"
    text = (
        f"the memory of {series.of} {moved} from {first / 1e6:.1f} MB to {last / 1e6:.1f} MB "
        f"({share_text(abs(last - first) / first)}) between the first and the last quarter"
    )
    return is_bad, text


def slowdown(run: LoadRun) -> tuple[bool, str]:
    """Whether the p99 rose too much from the first quarter to the last, and a sentence."""
    quarter = run.seconds / 4
    first, last = _typical(run, 0.0, quarter), _typical(run, run.seconds - quarter, run.seconds)
    is_bad = last > max(_SLOWER * first, first + _SLOWER_SECONDS)
    return is_bad, (
        f"the median p99 was {time_text(first)} in the first quarter and "
        f"{time_text(last)} in the last (over parts of {_part(quarter):.0f} s)"
    )


def _typical(run: LoadRun, first: float, last: float) -> float:
    """The median p99 over some seconds: one stall of the machine is no trend."""
    part = _part(last - first)
    count = max(1, round((last - first) / part))
    found = (p99(between(run, first + n * part, first + (n + 1) * part)) for n in range(count))
    known = [one for one in found if math.isfinite(one)]
    return median(known) if known else math.nan


def _part(seconds: float) -> float:
    return max(seconds / _PARTS, 1.0)
