"""What a scenario is, and the stage it plays on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from serve.workbench.loadtest import plan as plans
from serve.workbench.loadtest.observed_run import Action
from serve.workbench.loadtest.observer import LoadTarget
from serve.workbench.loadtest.plan import Arrivals, Closed, LoadPlan
from serve.workbench.loadtest.reports.report import LoadRun, Sweep


class ScenarioStage(Protocol):
    """Makes plans and runs, and tells people what goes on. Whoever plays a scenario has one."""

    @property
    def target(self) -> LoadTarget:
        """Where the model is served."""
        ...

    @property
    def seconds(self) -> float | None:
        """How long all measured runs together were asked to be; None for the scenario's own."""
        ...

    @property
    def rate(self) -> float | None:
        """Calls per second that were asked for; None for the scenario's own."""
        ...

    @property
    def objective(self) -> str:
        """What was asked to hold, or empty."""
        ...

    @property
    def kill_command(self) -> str:
        """How a replica is killed that is not on this machine, as a shell understands it."""
        ...

    def plan(
        self,
        *,
        protocols: Sequence[plans.LaneProtocol] = (),
        arrivals: Arrivals | None = None,
        closed: Closed | None = None,
        seconds: float,
        batch: int | None = None,
        address: str = "",
        warm_up: float = 0.0,
    ) -> LoadPlan:
        """A plan for the model; without `protocols` those that were asked for.

        `address`: another host:port than the gateway's, such as a Triton's.
        """
        ...

    async def perform(
        self, plan: LoadPlan, *, label: str, actions: Sequence[Action] = (), objective: str = ""
    ) -> LoadRun:
        """Make one run; one that was stopped has `stopped_after` in its outline."""
        ...

    def say(self, text: str) -> None:
        """A sentence for whoever looks on."""
        ...


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """What came of it. `findings` are sentences, the most important first.

    `passed` is by the scenario's own conditions, without objectives; None where it has none, or
    where the run was stopped before they could be judged.
    """

    title: str
    runs: tuple[LoadRun, ...]
    findings: tuple[str, ...] = ()
    passed: bool | None = None
    sweep: Sweep | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """`summary`: one sentence. `changes`: what it changes for a while, empty for nothing."""

    name: str
    summary: str
    play: Callable[[ScenarioStage], Awaitable[ScenarioOutcome]]
    changes: str = ""
