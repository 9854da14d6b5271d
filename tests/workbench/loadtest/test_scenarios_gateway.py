"""Scenarios on a real gateway with a real Triton and a real generator: what they change comes back.

The runs are too short to say anything about speed, and with one replica a kill is felt: only what
does not depend on the machine is asserted.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import harness
import numpy as np
import pytest

from serve.workbench.loadtest.bodies import path_of, payload_of
from serve.workbench.loadtest.observed_run import Action, perform
from serve.workbench.loadtest.observer import LoadTarget, RunObserver
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.catalogue import SCENARIOS
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome

pytestmark = [pytest.mark.triton, pytest.mark.slow]
_GRPC = (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM)


@dataclass
class RealStage:
    """Makes plans of random rows for the digits model, and real runs of them."""

    up: harness.Up
    seconds: float | None = None
    rate: float | None = 60.0
    objective: str = ""
    kill_command: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def target(self) -> LoadTarget:
        metrics = f"http://127.0.0.1:{self.up.metrics_port}/metrics"
        return LoadTarget(f"http://{self.up.http}", self.up.admin, metrics, model="digits")

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
        values = np.random.default_rng(0).random((batch or 1, 8, 8, 1), dtype=np.float32)
        lanes = tuple(
            Lane(
                name=str(one),
                protocol=one,
                address=address or (self.up.grpc if one in _GRPC else self.up.http),
                path=path_of(one, "digits", ""),
                payloads=(payload_of(one, "digits", "", {"x": values}, {"x": "FP32"}),),
            )
            for one in protocols or (LaneProtocol.HTTP_BINARY,)
        )
        return LoadPlan(lanes, seconds, arrivals, closed, timeout=10.0, warm_up=warm_up)

    async def perform(
        self, plan: LoadPlan, *, label: str, actions: Sequence[Action] = (), objective: str = ""
    ) -> LoadRun:
        return await perform(
            plan,
            label=label,
            observer=RunObserver(self.target),
            actions=actions,
            tell=lambda progress: None,
        )

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Up]:
    """One gateway with one Triton, for all tests of this file."""
    state = tmp_path_factory.mktemp("scenarios")
    with harness.up(state, "--replicas", "1", "--workers", "1") as one:
        one.split("digits", v1=90, v2=10)
        yield one


def play(name: str, up: harness.Up, **more: Any) -> ScenarioOutcome:
    return asyncio.run(SCENARIOS[name].play(RealStage(up, **more)))


def test_every_protocol_is_answered_and_the_other_side_tells_of_it(up: harness.Up) -> None:
    outcome = play("smoke", up, seconds=6.0)
    assert outcome.passed is True, outcome.findings
    (run,) = outcome.runs
    seen = run.observed
    assert sum(one.requests for one in seen.triton) == sum(
        cell.calls for _, _, cell in run.record.cells()
    )
    assert seen.gateway is not None and seen.gateway.cpu > 0
    names = {(one.group, one.name) for one in seen.series}
    assert {("replica", "up"), ("replica", "memory"), ("gateway", "memory")} <= names
    assert seen.problems == ()


def test_a_split_that_changes_under_load_is_followed_and_comes_back(up: harness.Up) -> None:
    outcome = play("split", up, seconds=9.0)
    assert outcome.passed is True, outcome.findings
    assert up.get("/api/routes/digits")["split"] == {"1": 90, "2": 10}
    revisions = [mark for mark in outcome.runs[0].observed.marks if "revision" in mark.text]
    assert len(revisions) == 2


def test_a_model_that_is_loaded_under_load_answers_and_stays_loaded(up: harness.Up) -> None:
    outcome = play("cold-start", up, seconds=15.0)
    assert "first call with a correct response started in second" in outcome.findings[0], (
        outcome.findings
    )
    assert up.get("/api/models/digits")["state"] == "ready"
    assert up.get("/api/routes/digits")["split"] == {"1": 90, "2": 10}


def test_a_killed_replica_is_found_killed_and_seen_to_come_back(up: harness.Up) -> None:
    before = up.children()["local-0"]
    outcome = play("kill", up, seconds=9.0)
    assert up.children()["local-0"] != before
    assert "local-0 was usable again" in outcome.findings[1], outcome.findings
    assert "the only replica" in outcome.findings[-1]


def test_calls_to_triton_itself_are_of_the_version_that_the_gateway_is_asked_for(
    up: harness.Up,
) -> None:
    outcome = play("direct", up, seconds=9.0)
    assert outcome.passed is True, outcome.findings
    assert len(outcome.runs) == 6
    for run in outcome.runs:
        assert [one.version for one in run.observed.triton] == ["1"]
