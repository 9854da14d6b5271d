"""`servegate load run`: from the options to a plan, from the plan to a report that is kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from serve.cli.endings import INTERRUPTED
from serve.cli.output import exit_code
from serve.cli.talk import CommandTalk
from serve.core.errors import Invalid
from serve.workbench.loadtest.cli.interrupts import Stopping, until_stopped
from serve.workbench.loadtest.cli.lanes import Calls
from serve.workbench.loadtest.cli.report_folder import ReportShelf

if TYPE_CHECKING:
    from serve.workbench.loadtest.observed_run import Action
    from serve.workbench.loadtest.plan import Arrivals, Closed, Lane, LoadPlan
    from serve.workbench.loadtest.reports.report import LoadReport, LoadRun

_DEFAULT = 60.0  # seconds of a run for which nothing was said


@dataclass(frozen=True, slots=True)
class CallPace:
    """When calls start, as it was asked. `seconds` 0: a trace to its end, others for a minute.

    `users` above 0: the closed loop.
    """

    rate: float = 0.0
    seconds: float = 0.0
    arrivals: str = "poisson"
    users: int = 0
    think: float = 0.0

    def __str__(self) -> str:
        """For people: `200 calls/s`, `10 users`, `ramp:10..200`."""
        if self.users:
            paced = f" at {self.rate:g} calls/s" if self.rate else ""
            return f"{self.users} user{'s' if self.users > 1 else ''}{paced}"
        kind = self.arrivals.partition(":")[0]
        if kind in ("poisson", "constant"):
            return f"{self.rate:g} calls/s" + (", constant" if kind == "constant" else "")
        return f"{self.rate:g} calls/s, {self.arrivals}" if kind in _SHAPED else self.arrivals

    def loop(self) -> "tuple[Arrivals | None, Closed | None]":
        """Arrivals of the open loop, or the closed one."""
        from serve.workbench.loadtest.arrivals import parse_arrivals
        from serve.workbench.loadtest.plan import Closed

        if self.users:
            return None, Closed(self.users, self.think, self.rate)
        if self.think:
            raise Invalid(
                "--think needs --closed",
                why="only users of a closed loop pause",
                try_this="--closed 10",
            )
        if not self.rate and self.arrivals.partition(":")[0] in ("poisson", "constant", *_SHAPED):
            raise Invalid(
                "the rate of the load test is missing",
                try_this="--rate 100, --closed 10 or --find-max",
            )
        return parse_arrivals(self.arrivals, self.rate), None

    def length(self, arrivals: "Arrivals | None") -> float:
        """Seconds of the run."""
        if self.seconds:
            return self.seconds
        if arrivals is not None and arrivals.times:
            return max(1.0, arrivals.times[-1] + 0.001)  # its last start is in it
        return _DEFAULT


_SHAPED = ("spike", "diurnal")  # over a rate; ramps and steps have rates of their own


@dataclass(frozen=True, slots=True)
class GeneratorOptions:
    """What makes the calls, and how hard."""

    workers: int = 1
    listen: str = ""
    expect: int = 0
    most: int = 1000
    timeout: float = 30.0
    warm_up: float = 2.0
    seed: int = 0

    def plan(self, lanes: "tuple[Lane, ...]", pace: CallPace, model: str) -> "LoadPlan":
        """The plan of a run."""
        from serve.workbench.loadtest.plan import LoadPlan

        arrivals, closed = pace.loop()
        return LoadPlan(
            lanes,
            seconds=pace.length(arrivals),
            arrivals=arrivals,
            closed=closed,
            timeout=self.timeout,
            most=self.most,
            warm_up=self.warm_up,
            seed=self.seed,
            labels={"model": model},
        )


@dataclass(frozen=True, slots=True)
class Running:
    """Makes runs, and shows how they go. `observe`: whether the gateway's side is asked."""

    talk: CommandTalk
    calls: Calls
    generator: GeneratorOptions
    observe: bool = True

    async def perform(
        self,
        plan: "LoadPlan",
        stopping: Stopping,
        *,
        label: str,
        actions: "Sequence[Action]" = (),
        objective: str = "",
    ) -> "LoadRun":
        """One run of a plan."""
        from serve.workbench.loadtest.arrivals import intended
        from serve.workbench.loadtest.cli.progress import watching
        from serve.workbench.loadtest.observed_run import perform
        from serve.workbench.loadtest.observer import RunObserver

        generator = self.generator
        target = self.calls.ends.target(self.calls.asked)
        meant = plan.arrivals and intended(plan.arrivals, plan.seconds, seed=plan.seed)
        after = f", after {plan.warm_up:g} s of warm-up" if plan.warm_up else ""
        self.talk.tell("run", f"{label}, for {plan.seconds:g} s{after}", label=label)
        with watching(self.talk, meant or ()) as watch:
            return await perform(
                plan,
                label=label,
                objective=objective,
                workers=generator.workers,
                listen=generator.listen,
                expect=generator.expect,
                observer=RunObserver(target) if self.observe else None,
                actions=actions,
                tell=watch,
                stop=stopping.event,
            )


def make_lanes(running: Running) -> "tuple[Lane, ...]":
    """The lanes of what is called; notes are told."""
    return running.calls.lanes(lambda text: running.talk.tell("note", text))


def measure(
    running: Running, pace: CallPace, shelf: ReportShelf, objective: str
) -> "tuple[LoadReport, bool]":
    """One run at one pace, as a report; and whether it was ended early."""
    from serve.workbench.loadtest.reports.findings import findings
    from serve.workbench.loadtest.reports.objectives import judge_run, parse_objective

    if objective:
        parse_objective(objective)  # before anything is called
    pace.loop()
    lanes = make_lanes(running)
    plan = running.generator.plan(lanes, pace, running.calls.asked.model)

    async def work(stopping: Stopping) -> "tuple[LoadRun, bool]":
        run = await running.perform(plan, stopping, label=str(pace), objective=objective)
        return run, stopping.is_asked

    run, is_stopped = until_stopped(work)
    if is_stopped and not run.record.windows:
        raise KeyboardInterrupt
    judged = judge_run(run)
    passed = all(one.passed for one in judged) if judged and not is_stopped else None
    return shelf.report((run,), findings(run), passed), is_stopped


def conclude(
    talk: CommandTalk,
    shelf: ReportShelf,
    report: "LoadReport",
    *,
    is_stopped: bool,
    share: Callable[["LoadReport"], None] | None,
) -> Exception | None:
    """Keep a report, show it, and tell the result; what is returned is to be raised at the end."""
    from serve.workbench.loadtest.cli.view import document, refusal, show

    report, path = shelf.keep(report)
    show(talk, report, path)
    if share is not None:
        share(report)
    refused = None if is_stopped else refusal(report)
    code = INTERRUPTED if is_stopped else exit_code(refused) if refused else 0
    talk.tell("result", ok=code == 0, exit=code, **document(report, path))
    return typer.Exit(code) if is_stopped else refused
