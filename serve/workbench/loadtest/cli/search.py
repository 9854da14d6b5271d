"""`servegate load run --find-max`: trials at one rate after the other, as one report."""

from dataclasses import replace
from typing import TYPE_CHECKING

from serve.core.errors import Invalid
from serve.workbench.loadtest.cli.interrupts import Stopping, until_stopped
from serve.workbench.loadtest.cli.report_folder import ReportShelf
from serve.workbench.loadtest.cli.single_run import CallPace, Running, make_lanes

if TYPE_CHECKING:
    from serve.workbench.loadtest.plan import Lane
    from serve.workbench.loadtest.rate_search import RateTrial, SearchResult
    from serve.workbench.loadtest.reports.report import LoadReport, LoadRun, Sweep

FIRST = 50.0  # calls/s of the first trial
MOST = 100_000.0
_SECONDS = 10.0  # of a trial
_REACHED = "achieved>99%"  # refused calls have no latency: without this they would be allowed


def search(
    running: Running, pace: CallPace, shelf: ReportShelf, objective: str, most: float
) -> "tuple[LoadReport, bool]":
    """The highest rate that meets the objective; and whether the search was ended early."""
    from serve.workbench.loadtest.rate_search import find_max
    from serve.workbench.loadtest.reports.objectives import parse_objective

    if not objective:
        raise Invalid("--find-max needs an objective", try_this="--slo 'p99<20ms'")
    if pace.users:
        raise Invalid(
            "--find-max cannot be used with --closed",
            why="in a closed loop, the users set the rate",
        )
    if not {"errors", "achieved"} & {each.name for each in parse_objective(objective)}:
        objective += f",{_REACHED}"
    pace = replace(pace, rate=pace.rate or FIRST, seconds=pace.seconds or _SECONDS)
    trials = _Trials(running, pace, objective, make_lanes(running))

    async def work(stopping: Stopping) -> "SearchResult | None":
        trials.stopping = stopping
        try:
            return await find_max(trials.attempt, first=pace.rate, most=most or MOST)
        except _Stopped:
            return None

    found = until_stopped(work)
    if found is None and not trials.runs:
        raise KeyboardInterrupt
    return _report(shelf, trials, found, objective), found is None


class _Stopped(Exception):
    """The search was interrupted."""


class _Trials:
    """Makes the runs of a search, and keeps them."""

    def __init__(
        self, running: Running, pace: CallPace, objective: str, lanes: "tuple[Lane, ...]"
    ) -> None:
        self._running = running
        self._pace = pace
        self._objective = objective
        self._lanes = lanes
        self.stopping = Stopping()
        self.runs: list[tuple[float, LoadRun]] = []

    def __repr__(self) -> str:
        return f"<_Trials {len(self.runs)} made>"

    async def attempt(self, rate: float, number: int) -> "RateTrial":
        """One run at a rate."""
        from serve.workbench.loadtest.rate_search import RateTrial
        from serve.workbench.loadtest.reports.amounts import rate_text
        from serve.workbench.loadtest.reports.objectives import judge_run
        from serve.workbench.loadtest.reports.summary import total

        running, pace = self._running, replace(self._pace, rate=rate)
        generator = replace(running.generator, seed=running.generator.seed + number)
        plan = generator.plan(self._lanes, pace, running.calls.asked.model)
        run = await running.perform(plan, self.stopping, label=str(pace), objective=self._objective)
        if run.record.windows:
            self.runs.append((rate, run))
        if self.stopping.is_asked:
            raise _Stopped
        missed = [str(one) for one in judge_run(run) if not one.passed]
        row = total(run)
        running.talk.tell(
            "trial",
            f"{rate_text(rate)}: {'; '.join(missed) or 'objective met'}",
            rate=rate,
            passed=not missed,
        )
        return RateTrial(
            rate, not missed, why="; ".join(missed), achieved=row.rate, p99=row.latency.p99
        )


def _report(
    shelf: ReportShelf, trials: _Trials, found: "SearchResult | None", objective: str
) -> "LoadReport":
    from serve.workbench.loadtest.cli.view import limits
    from serve.workbench.loadtest.reports.amounts import rate_text

    runs = [run for _, run in sorted(trials.runs, key=lambda pair: pair[0])]
    above = found.failed if found else 0.0
    said = limits([run for rate, run in trials.runs if rate == above])  # what ended the search
    if found is None:
        said.append("The search was interrupted before it found a rate.")
    elif not found.rate:
        said.append(f"No rate meets {objective}.")
    else:
        upper = "" if found.failed == float("inf") else f"; {rate_text(found.failed)} missed it"
        said.append(f"{rate_text(found.rate)} is the highest rate that met {objective}{upper}.")
    said += found.notes if found else ()
    passed = None if found is None else found.rate > 0
    return shelf.report(runs, said, passed, _sweep(trials, found))


def _sweep(trials: _Trials, found: "SearchResult | None") -> "Sweep":
    """p99 by rate, in the order of the report's runs."""
    from serve.workbench.loadtest.reports.report import Sweep
    from serve.workbench.loadtest.reports.summary import total

    pairs = sorted(trials.runs, key=lambda pair: pair[0])
    return Sweep(
        x="intended calls/s",
        y="p99 in ms",
        xs=tuple(rate for rate, _ in pairs),
        ys=tuple(1000 * total(run).latency.p99 for _, run in pairs),
        best=found.rate if found and found.rate else None,
    )
