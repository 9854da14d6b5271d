"""A run with its observer, its actions and its progress, against a small server."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from load_plans import generators, plan_of
from model_server import ModelServer

from serve.core.errors import Invalid, Unavailable
from serve.workbench.loadtest.observed import Observed, ObservedEvent
from serve.workbench.loadtest.observed_run import Action, RunProgress, perform
from serve.workbench.loadtest.plan import LoadPlan
from serve.workbench.loadtest.reports.report import LoadRun


class Diary:
    """An observer that writes down what is asked of it, and has seen a mark and a problem."""

    def __init__(self, fails: str = "") -> None:
        self.entries: list[str] = []
        self._fails = fails

    async def begin(self) -> None:
        self.entries.append("begin")

    async def watch(self, since: float) -> None:
        self.entries.append("watch")
        if self._fails == "watch":
            raise Unavailable("nobody answers")
        try:
            await asyncio.Event().wait()
        finally:
            self.entries.append("let go")

    async def end(self) -> Observed:
        self.entries.append("end")
        if self._fails == "end":
            raise Unavailable("nobody answers")
        return Observed(marks=(ObservedEvent(0.3, "seen"),), problems=("half blind",))


def run_of(
    plan: LoadPlan, tell: Callable[[RunProgress], None] = lambda _: None, **options: object
) -> LoadRun:
    return asyncio.run(perform(plan, label="a run", tell=tell, **options))  # type: ignore[arg-type]


async def nothing() -> str:
    return ""


def test_a_run_has_what_both_sides_say(server: ModelServer) -> None:
    diary = Diary()
    plan = replace(plan_of(server.address), labels={"model": "m"})
    run = run_of(plan, observer=diary, objective="p99<1s")
    assert diary.entries == ["begin", "watch", "let go", "end"]
    assert (run.label, run.objective, run.workers) == ("a run", "p99<1s", 1)
    assert run.outline == plan.outline()
    assert sum(cell.calls for _, _, cell in run.record.cells()) == 100
    assert run.observed == Observed(marks=(ObservedEvent(0.3, "seen"),), problems=("half blind",))


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["watch", "end"])
def test_an_observer_that_fails_is_a_problem_and_no_more(server: ModelServer, fails: str) -> None:
    run = run_of(plan_of(server.address), observer=Diary(fails))
    assert any("nobody answers" in text for text in run.observed.problems)
    assert sum(cell.calls for _, _, cell in run.record.cells()) == 100


def test_actions_are_done_at_their_second_and_marked(server: ModelServer) -> None:
    done: list[str] = []

    async def split() -> str:
        done.append("split")
        return "the split is 50/50"

    async def kill() -> str:
        done.append("kill")
        return ""

    actions = [Action(0.6, "kill a replica", kill), Action(0.2, "change the split", split)]
    marks = run_of(plan_of(server.address), observer=Diary(), actions=actions).observed.marks
    assert done == ["split", "kill"]
    assert [mark.text for mark in marks] == ["the split is 50/50", "seen", "kill a replica"]
    assert [mark.at >= at for mark, at in zip(marks, (0.2, 0.3, 0.6), strict=True)] == [True] * 3


@pytest.mark.slow
def test_an_action_that_fails_is_told_and_the_run_goes_on(server: ModelServer) -> None:
    async def fail() -> str:
        raise Unavailable("no replica is left", why="all were killed")

    run = run_of(plan_of(server.address), actions=[Action(0.2, "kill one more", fail)])
    told = "kill one more failed: no replica is left: all were killed"
    assert [mark.text for mark in run.observed.marks] == [told]
    assert run.observed.problems == (told,)
    assert sum(cell.calls for _, _, cell in run.record.cells()) == 100


@pytest.mark.slow
def test_an_action_after_the_run_is_not_done(server: ModelServer) -> None:
    run = run_of(plan_of(server.address), actions=[Action(60.0, "too late", nothing)])
    assert run.observed.marks == ()
    assert run.observed.problems == ("too late: skipped, because the run ended first",)


@pytest.mark.slow
def test_a_cancelled_run_leaves_nothing(server: ModelServer) -> None:
    diary = Diary()

    async def cancel_when_it_goes() -> None:
        goes = asyncio.Event()
        plan = plan_of(server.address, seconds=600.0)
        task = asyncio.create_task(
            perform(plan, label="", observer=diary, tell=lambda _: goes.set())
        )
        await goes.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_when_it_goes())
    assert diary.entries[-1] == "end"
    assert generators() == []


def test_a_run_that_cannot_be_raises_what_is_wrong(server: ModelServer) -> None:
    for words, options in (
        ("0 workers", {"workers": 0}),
        ("workers cannot connect", {"listen": "256.256.256.256:1", "expect": 1}),
    ):
        diary, actions = Diary(), [Action(0.1, "one", nothing)]
        with pytest.raises(Invalid, match=words):
            run_of(plan_of(server.address), observer=diary, actions=actions, **options)
        assert diary.entries == ["begin", "end"]
