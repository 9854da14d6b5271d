"""Smoke: every protocol at a low rate. Does everything answer, and rightly?"""

from __future__ import annotations

from serve.workbench.loadtest.plan import Arrivals, LaneProtocol
from serve.workbench.loadtest.record import RIGHT, WRONG
from serve.workbench.loadtest.reports.amounts import time_text
from serve.workbench.loadtest.reports.summary import rows
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import (
    failed_sentence,
    failures,
    is_stopped,
    outcomes,
    top1_sentence,
)

_SECONDS = 10.0
_RATE = 25.0
_LEAST_RIGHT = 0.5  # of the answers: fewer mean that rows or classes are mixed up


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """One run with a lane for each protocol."""
    plan = stage.plan(
        protocols=tuple(LaneProtocol),
        arrivals=Arrivals(stage.rate or _RATE),
        seconds=stage.seconds or _SECONDS,
    )
    run = await stage.perform(plan, label="every protocol", objective=stage.objective)
    windows = list(run.record.windows.values())
    counts = outcomes(windows)
    lanes = [row for row in rows(run) if not row.version]
    silent = sorted(
        {str(lane["name"]) for lane in run.outline["lanes"]} - {row.lane for row in lanes}
    )
    quick = ", ".join(
        f"{row.lane} {time_text(row.latency.p50)} ({row.calls} calls)" for row in lanes
    )
    findings = [
        failed_sentence(windows),
        top1_sentence(windows),
        f"median latency: {quick}" if quick else "",
        *(f"no call used {lane}, because the run was too short" for lane in silent),
    ]
    is_right = counts[RIGHT] >= _LEAST_RIGHT * (counts[RIGHT] + counts[WRONG])
    passed = not failures(windows) and bool(counts) and is_right and not silent
    return ScenarioOutcome(
        "Smoke: every protocol at a low rate",
        (run,),
        tuple(filter(None, findings)),
        None if is_stopped(run) else passed,
    )
