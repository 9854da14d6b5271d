"""A stage by script, and a control plane for it, for the tests of scenarios."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.loadtest.fake_sides import Side, replica_page
from workbench.loadtest.records import run_of

from serve.workbench.loadtest.observed_run import Action
from serve.workbench.loadtest.observer import LoadTarget
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan, Payload
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.catalogue import SCENARIOS

ROUTE = "/api/routes/digits"


@dataclass
class FakeStage:
    """Does the actions of a run one after the other, and gives the run that is scripted."""

    target: LoadTarget
    result: Callable[[LoadPlan, str], LoadRun] = lambda plan, label: run_of(12, 50.0, label=label)
    seconds: float | None = None
    rate: float | None = None
    objective: str = ""
    kill_command: str = ""
    plans: list[LoadPlan] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def plan(
        self,
        *,
        protocols: Sequence[LaneProtocol] = (),
        arrivals: Any = None,
        closed: Any = None,
        seconds: float,
        batch: int | None = None,
        address: str = "",
        warm_up: float = 0.0,
    ) -> LoadPlan:
        body, path = Payload(b"x", rows=batch or 1), "/in/front/v2/models/digits/infer"
        lanes = tuple(
            Lane(str(one), one, address or "gateway:80", path, (body,))
            for one in protocols or (LaneProtocol.HTTP_BINARY,)
        )
        return LoadPlan(lanes, seconds, arrivals, closed, warm_up=warm_up)

    async def perform(
        self, plan: LoadPlan, *, label: str, actions: Sequence[Action] = (), objective: str = ""
    ) -> LoadRun:
        self.plans.append(plan)
        self.labels.append(label)
        for action in actions:
            self.said.append(await action.do())
        return self.result(plan, label)

    def say(self, text: str) -> None:
        self.said.append(text)


def play(name: str, stage: FakeStage) -> Any:
    return asyncio.run(SCENARIOS[name].play(stage))


def bare(**more: Any) -> FakeStage:
    return FakeStage(LoadTarget("http://gateway:80", model="digits"), **more)


def managed(told: Side, **more: Any) -> FakeStage:
    return FakeStage(LoadTarget(told.url, told.url, model="digits"), **more)


def routed(**more: Any) -> dict[str, Any]:
    """A control plane with two versions, split 90 to 10."""
    versions = [{"version": one, "state": "ready", "replicas": ["local-0"]} for one in (1, 2)]
    return {
        ROUTE: {"split": {"1": 90, "2": 10}, "routed": True},
        "/api/models/digits": {"name": "digits", "versions": versions},
        "/api/replicas": [replica_page()],
    } | more
