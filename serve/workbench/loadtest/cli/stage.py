"""The stage of a scenario: makes its plans and runs from the options of the command."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from serve.workbench.loadtest.cli.interrupts import Stopping, until_stopped
from serve.workbench.loadtest.cli.report_folder import ReportShelf
from serve.workbench.loadtest.cli.single_run import Running, make_lanes

if TYPE_CHECKING:
    from serve.workbench.loadtest.observed_run import Action
    from serve.workbench.loadtest.observer import LoadTarget
    from serve.workbench.loadtest.plan import Arrivals, Closed, LaneProtocol, LoadPlan
    from serve.workbench.loadtest.reports.report import LoadReport, LoadRun
    from serve.workbench.loadtest.scenarios.scenario import Scenario, ScenarioOutcome


@dataclass(frozen=True, slots=True)
class CommandStage:
    """See `Stage` of the scenarios."""

    running: Running
    stopping: Stopping
    target: "LoadTarget"
    seconds: float | None = None
    rate: float | None = None
    objective: str = ""
    kill_command: str = ""

    def plan(
        self,
        *,
        protocols: "Sequence[LaneProtocol]" = (),
        arrivals: "Arrivals | None" = None,
        closed: "Closed | None" = None,
        seconds: float,
        batch: int | None = None,
        address: str = "",
        warm_up: float = 0.0,
    ) -> "LoadPlan":
        """See `Stage`. A first call is made only to the gateway."""
        from serve.workbench.loadtest.plan import LoadPlan

        calls, generator = self.running.calls, self.running.generator
        calls = calls.but(
            protocols=tuple(protocols) or calls.protocols,
            batch=calls.wish.batch if batch is None else batch,
            address=address,
            checked=calls.checked and not address,
        )
        return LoadPlan(
            make_lanes(replace(self.running, calls=calls)),
            seconds=seconds,
            arrivals=arrivals,
            closed=closed,
            timeout=generator.timeout,
            most=generator.most,
            warm_up=warm_up,
            seed=generator.seed,
            labels={"model": calls.asked.model},
        )

    async def perform(
        self, plan: "LoadPlan", *, label: str, actions: "Sequence[Action]" = (), objective: str = ""
    ) -> "LoadRun":
        """See `Stage`."""
        return await self.running.perform(
            plan, self.stopping, label=label, actions=actions, objective=objective
        )

    def say(self, text: str) -> None:
        """See `Stage`."""
        self.running.talk.tell("note", text)


def play(
    scenario: "Scenario", stage: CommandStage, shelf: ReportShelf
) -> "tuple[LoadReport, bool]":
    """Play a scenario; its report, and whether it was ended early."""

    async def work(stopping: Stopping) -> "tuple[ScenarioOutcome, bool]":
        outcome = await scenario.play(replace(stage, stopping=stopping))
        return outcome, stopping.is_asked

    outcome, is_stopped = until_stopped(work)
    runs = [run for run in outcome.runs if run.record.windows]
    if not runs:
        raise KeyboardInterrupt
    told = replace(shelf, title=outcome.title)
    passed = None if is_stopped else _passed(outcome)
    return told.report(runs, _findings(outcome, runs), passed, outcome.sweep), is_stopped


def _passed(outcome: "ScenarioOutcome") -> bool | None:
    """By the scenario's own conditions and all objectives; None where there are none."""
    from serve.workbench.loadtest.reports.objectives import judge_run

    verdicts = [one.passed for run in outcome.runs for one in judge_run(run)]
    if outcome.passed is not None:
        verdicts.append(outcome.passed)
    return all(verdicts) if verdicts else None


def _findings(outcome: "ScenarioOutcome", runs: "Sequence[LoadRun]") -> list[str]:
    """Where the generator was the limit, what was not met, what the scenario says; all else."""
    from serve.workbench.loadtest.cli.view import limits
    from serve.workbench.loadtest.reports.findings import findings
    from serve.workbench.loadtest.reports.objectives import judge_run

    said = limits(runs)
    said += [f"{run.label}: {one}" for run in runs for one in judge_run(run) if not one.passed]
    said += outcome.findings
    if len(runs) == 1:
        said += findings(runs[0])
    return list(dict.fromkeys(said))
