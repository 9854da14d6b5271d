"""Cold start: the model is unloaded, and loaded again while callers are already there.

How long until the first right answer, and until the latency is what it stays to be? Times come from
the windows of the run, so they are whole seconds of the intended starts.
"""

from __future__ import annotations

import math
import time

from serve.workbench.loadtest.observed_run import Action
from serve.workbench.loadtest.plan import Arrivals
from serve.workbench.loadtest.record import RIGHT
from serve.workbench.loadtest.reports.amounts import time_text
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.admin import Admin, putting_back
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import between, failures, is_stopped, outcomes, p99

_SECONDS = 40.0
_RATE = 50.0
_WIDTH = 3  # seconds that a p99 is taken over
_SETTLED = 2.0  # times the p99 of the last third
_SETTLED_SECONDS = 0.005  # below this, it is noise


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """One run, which begins with the load; the model is loaded in the end, whatever happens."""
    model = stage.target.model
    async with Admin(stage.target, reason="load test: cold start") as admin:
        await admin.model()
        arrivals = Arrivals(stage.rate or _RATE)
        plan = stage.plan(arrivals=arrivals, seconds=stage.seconds or _SECONDS)
        loading = _Loading(admin)
        stage.say(
            f"unloading {model} now and loading it when calls arrive; it is unavailable until then"
        )
        by_hand = admin.command(f"servegate model load {model}")
        async with putting_back(
            loading.put_back, what=model, by_hand=by_hand, say=stage.say
        ) as undone:
            await admin.unload()
            run = await stage.perform(
                plan,
                label="cold start",
                actions=(Action(0.0, f"{model} loaded", loading.load),),
                objective=stage.objective,
            )
    findings, passed = judge(run, loading.took)
    return ScenarioOutcome(
        "Cold start: the model is loaded while calls arrive",
        (run,),
        (*undone, *findings),
        None if is_stopped(run) and not undone else passed and not undone,
    )


class _Loading:
    """Loads the model; `took` says how long that was, by the control plane."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.took: float | None = None

    def __repr__(self) -> str:
        return f"<_Loading took={self.took}>"

    async def load(self) -> str:
        """Now."""
        begun = time.monotonic()
        await self._admin.load()
        self.took = time.monotonic() - begun
        return f"loaded on all replicas after {self.took:.1f} s"

    async def put_back(self) -> None:
        """Load it, unless that was done."""
        if self.took is None:
            await self._admin.load()


def judge(run: LoadRun, took: float | None) -> tuple[tuple[str, ...], bool]:
    """What the callers saw; passed if answers came, kept coming, and their p99 settled."""
    right = [second for second, one in run.record.windows.items() if outcomes([one])[RIGHT]]
    if not right:
        return (f"no correct response arrived within {run.seconds:g} s",), False
    first, settled = right[0], settling(run, right[0])
    later = failures(between(run, first + 1, math.inf)).total()
    early = failures(between(run, 0, first + 1)).total()
    reference = p99(between(run, run.seconds * 2 / 3, run.seconds))
    findings = [
        f"the first call with a correct response started in second {first} of the load; "
        f"{early} calls failed before it",
        f"p99 was stable from second {settled} on, at {time_text(reference)}"
        if settled is not None
        else f"p99 did not become stable; it was {time_text(reference)} in the last third",
    ]
    if took is not None:
        findings.append(f"the model was loaded on all replicas after {time_text(took)}")
    if later:
        findings.append(f"{later} calls failed after the first correct response")
    return tuple(findings), settled is not None and not later


def settling(run: LoadRun, first: int) -> int | None:
    """The second from which on p99 stays near what it is in the last third; None for none."""
    reference = p99(between(run, run.seconds * 2 / 3, run.seconds))
    limit = max(_SETTLED * reference, reference + _SETTLED_SECONDS)
    last = math.floor(run.seconds * 2 / 3)
    settled = None
    for second in range(last, first - 1, -1):
        there = p99(between(run, second, second + _WIDTH))
        if there > limit:
            break
        settled = second
    return settled
