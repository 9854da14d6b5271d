"""Overload: up to twice the rate that the model sustains, and back. Is too much refused quickly?

A short closed loop finds the rate. Then the intended rate climbs in equal steps, whatever the
answers are, and the first step comes again: twice as long, because what has piled up has to go.

Calls are JSON in large batches where the model takes them: they cost the server much and the
generator little, so that on one machine it is not the generator that gives out first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from serve.core.errors import Invalid, Unavailable
from serve.workbench.loadtest.plan import Arrivals, Closed, LaneProtocol, LoadPlan, RateShape
from serve.workbench.loadtest.record import NEVER_STARTED, TIMED_OUT, RecordWindow
from serve.workbench.loadtest.reports.amounts import rate_text, share_text, time_text
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import total
from serve.workbench.loadtest.scenarios.batch_sweep import largest_batch
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import (
    answers,
    between,
    failures,
    is_stopped,
    outcomes,
    p99,
)

_USERS = 32
_BATCH = 64  # rows at most
_PROBE = 6.0  # seconds
_STEPS = (0.5, 1.0, 1.5, 2.0, 0.5, 0.5)  # of the rate that was found
_SECONDS = 60.0
_SLOWER = 2.0  # times the first step's p99, which the last one may be
_LOST = 0.001  # of the calls of the last step, which may fail beyond those of the first
_LOST_OVER = 0.01  # of the calls above the sustained rate, which may end otherwise than refused
_SLOWER_SECONDS = 0.010  # below this, it is noise
_SHED = ("http_429", "http_503", "grpc_RESOURCE_EXHAUSTED", "grpc_UNAVAILABLE")


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """A probe, then one run in steps. A rate that was asked for is taken for the sustained one."""
    runs: list[LoadRun] = []
    plan_of = _planner(stage, await _batch(stage))
    capacity = stage.rate
    if capacity is None:
        probe = plan_of(closed=Closed(_USERS), seconds=_PROBE, warm_up=2.0)
        runs.append(await stage.perform(probe, label=f"probe: {_USERS} users"))
        capacity = total(runs[-1]).rate
        if is_stopped(runs[-1]):
            return ScenarioOutcome("Overload", tuple(runs))
        if not capacity > 0:
            raise Unavailable(
                "the model gave no correct response, so its sustainable rate is unknown"
            )
        stage.say(f"{_USERS} users reach {rate_text(capacity)}; the steps go up to twice that")
    seconds = stage.seconds or _SECONDS
    levels = tuple(step * capacity for step in _STEPS)
    arrivals = Arrivals(capacity, RateShape.STEP, levels=levels)
    plan = plan_of(arrivals=arrivals, seconds=seconds)
    run = await stage.perform(plan, label="steps", objective=stage.objective)
    findings, passed = judge(run, capacity)
    return ScenarioOutcome(
        "Overload: up to twice the sustainable rate, and back",
        (*runs, run),
        findings,
        None if is_stopped(run) else passed,
    )


async def _batch(stage: ScenarioStage) -> int | None:
    try:
        return min(await largest_batch(stage.target), _BATCH)
    except Invalid:
        return None


def _planner(stage: ScenarioStage, batch: int | None) -> Callable[..., LoadPlan]:
    """What makes plans of the calls that cost the server most, of those that can be made."""
    for protocols, rows in (((LaneProtocol.HTTP_JSON,), batch), ((LaneProtocol.HTTP_JSON,), None)):
        made = partial(stage.plan, protocols=protocols, batch=rows)
        try:
            made(closed=Closed(1), seconds=1.0)
        except Invalid:  # types that JSON cannot say, or too few rows of input
            continue
        return made
    return stage.plan


def judge(run: LoadRun, capacity: float) -> tuple[tuple[str, ...], bool]:
    """What the steps show; passed if all came back, and what was refused was refused quickly."""
    width = run.seconds / len(_STEPS)
    steps = [between(run, n * width, (n + 1) * width) for n in range(len(_STEPS))]
    first, last = p99(steps[0]), p99(steps[-1])
    is_back = last <= max(_SLOWER * first, first + _SLOWER_SECONDS)
    before_failed, back_failed = _failed_share(steps[0]), _failed_share(steps[-1])
    is_whole = back_failed <= before_failed + _LOST
    over = [*steps[2], *steps[3]]
    shed, lost = _refused(failures(over))
    calls = outcomes(over).total()
    findings = (
        f"p99 was {time_text(first)} at half of {rate_text(capacity)}, "
        f"{time_text(p99(steps[3]))} at twice that rate, and {time_text(last)} afterwards"
        + ("" if is_back else "; it did not recover"),
        *_shed_sentence(shed, lost, calls),
        *(_step_sentence(n, step, capacity, width) for n, step in enumerate(steps)),
        f"{share_text(back_failed)} of the calls failed in the last step, "
        f"{share_text(before_failed)} in the first",
    )
    return findings, is_back and is_whole and lost <= _LOST_OVER * calls


def _failed_share(step: list[RecordWindow]) -> float:
    return failures(step).total() / max(1, outcomes(step).total())


def _refused(failed: Counter[str]) -> tuple[int, int]:
    """Calls that were refused, and those that were lost in another way."""
    shed = sum(count for outcome, count in failed.items() if outcome.startswith(_SHED))
    return shed, failed.total() - shed


def _shed_sentence(shed: int, lost: int, calls: int) -> list[str]:
    found = []
    if shed:
        share = share_text(shed / calls)
        found.append(f"above the sustainable rate, {share} of the calls were refused (429, 503)")
    else:
        found.append("no calls were refused above the sustainable rate; clients waited instead")
    if lost:
        found.append(
            f"{lost} calls failed without being refused; see the errors, especially "
            f"{TIMED_OUT} and {NEVER_STARTED}"
        )
    return found


def _step_sentence(number: int, step: list[RecordWindow], capacity: float, width: float) -> str:
    asked = _STEPS[number] * capacity
    return (
        f"step {number + 1}, {rate_text(asked)} intended: "
        f"{rate_text(answers(step) / width)} responses, p99 {time_text(p99(step))}"
    )
