"""Direct: the same calls through the gateway and to one Triton itself, in turns.

Both ask for the same version: left to itself, the gateway would split and Triton would take the
newest. Rounds go there and back (gateway, direct; direct, gateway; …), so that what drifts on the
machine meets both alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serve.core.errors import Invalid
from serve.core.replicas import Replica
from serve.workbench.loadtest.bodies import path_of
from serve.workbench.loadtest.plan import Arrivals, LaneProtocol, LoadPlan
from serve.workbench.loadtest.reports.amounts import time_text
from serve.workbench.loadtest.reports.comparison import PAIRS, Ratio, compare
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.admin import Admin
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import failed_sentence, failures, is_stopped

_SECONDS = 10.0  # for one run
_RATE = 100.0
_WARM_UP = 1.0
_NAMES = {"p50": "p50", "p90": "p90", "p99": "p99", "mean": "the mean", "rate": "the rate"}


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """As many rounds as pairs are needed for an interval."""
    async with Admin(stage.target, reason="load test: direct") as admin:
        version, replica, physical = await _same(admin, stage.target.model)
    stage.say(
        f"alternating between version {version} through the gateway and directly on "
        f"{replica.name} at {replica.host}:{replica.http_port}"
    )
    seconds = stage.seconds / (2 * PAIRS) if stage.seconds else _SECONDS
    sides: dict[str, list[LoadRun]] = {"gateway": [], "direct": []}
    order = ("gateway", "direct")
    for number in range(PAIRS):
        for side in order:
            names = (stage.target.model, str(version)) if side == "gateway" else physical
            address = "" if side == "gateway" else f"{replica.host}:{replica.http_port}"
            plan = _plan(stage, max(seconds, 3.0), address, *names)
            label = f"{side}, round {number + 1}"
            sides[side].append(await stage.perform(plan, label=label, objective=stage.objective))
            if is_stopped(sides[side][-1]):
                return ScenarioOutcome("Direct", (*sides["gateway"], *sides["direct"]))
        order = (order[1], order[0])
    return conclude(sides["gateway"], sides["direct"])


def conclude(gateway: list[LoadRun], direct: list[LoadRun]) -> ScenarioOutcome:
    """What the gateway adds; passed if no call failed on either side."""
    ratios = compare(direct, gateway)
    windows = [one for run in (*gateway, *direct) for one in run.record.windows.values()]
    findings = [*_added(ratios), *map(_sentence, ratios), failed_sentence(windows)]
    return ScenarioOutcome(
        "Direct: through the gateway compared with one Triton directly",
        (*gateway, *direct),
        tuple(filter(None, findings)),
        not failures(windows),
    )


def _plan(stage: ScenarioStage, seconds: float, address: str, model: str, version: str) -> LoadPlan:
    """The plan with the version in its path; the bodies of HTTP name no model."""
    plan = stage.plan(
        protocols=(LaneProtocol.HTTP_BINARY,),
        arrivals=Arrivals(stage.rate or _RATE),
        seconds=seconds,
        address=address,
        warm_up=_WARM_UP,
    )
    path = path_of(LaneProtocol.HTTP_BINARY, model, version)
    lanes = (replace(lane, path=lane.path.partition("/v2/")[0] + path) for lane in plan.lanes)
    return replace(plan, lanes=tuple(lanes))


def _added(ratios: tuple[Ratio, ...]) -> list[str]:
    """Seconds that the gateway adds to the median and to p99."""
    found = {ratio.name: ratio for ratio in ratios}
    parts = [
        f"{time_text(found[name].after - found[name].before)} to {name}"
        for name in ("p50", "p99")
        if name in found and found[name].after >= found[name].before
    ]
    return [f"the gateway adds {' and '.join(parts)}"] if parts else []


def _sentence(ratio: Ratio) -> str:
    if ratio.name not in _NAMES:
        return ""
    return (
        f"{_NAMES[ratio.name]} through the gateway is {ratio.ratio:.2f} times the direct "
        f"value (95 % interval: {ratio.low:.2f} to {ratio.high:.2f})"
    )


async def _same(admin: Admin, model: str) -> tuple[int, Replica, tuple[str, str]]:
    """A version that gets calls, a replica that holds it, and what that Triton calls it."""
    snapshot = await admin.snapshot()
    view: Mapping[str, Any] = snapshot["models"].get(model, {})
    split = {int(version): weight for version, weight in (view.get("split") or {}).items()}
    targets = {int(version): target for version, target in view.get("targets", {}).items()}
    for version in sorted(split.keys() & targets.keys(), key=lambda one: -split[one]):
        target = targets[version]
        for name in target["replicas"]:
            page = snapshot["replicas"][name]
            replica = Replica.parse(str(page["address"]), name=name, pool=str(page["pool"]))
            physical = (str(target["physical_name"]), str(target["physical_version"]))
            return version, replica, physical
    raise Invalid(
        f"no replica has loaded a version of {model}",
        try_this=admin.command("servegate replica ls"),
    )
