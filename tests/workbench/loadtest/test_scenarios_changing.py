"""Scenarios that change something: whether it was borne well, and that it is put back."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from workbench.loadtest.fake_sides import replica_page, side
from workbench.loadtest.fake_stage import ROUTE, FakeStage, managed, play, routed
from workbench.loadtest.records import run_of, run_of_seconds

from serve.core.errors import Invalid
from serve.workbench.loadtest.observer import LoadTarget
from serve.workbench.loadtest.plan import LoadPlan
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios import cold_start, split
from serve.workbench.loadtest.scenarios import kill as killing
from serve.workbench.loadtest.scenarios.catalogue import SCENARIOS

LOAD, UNLOAD = "/api/models/digits/load", "/api/models/digits/unload"


def split_run(shares: Sequence[float], *, late: int = 0) -> LoadRun:
    """Thirty seconds; version 1 has a share in each third, `late` seconds after the change."""

    def third(number: int) -> LoadRun:
        told = f"by=split; generation={11 + number}"
        share = shares[number]
        decisions = {f"1; {told}": share, f"2; {told}": 1 - share}
        return run_of(30, 100.0, decisions=decisions, seed=number)

    runs = [third(number).record.windows for number in range(3)]
    return run_of_seconds(30, lambda second: runs[(second >= 10 + late) + (second >= 20)][second])


BEFORE, OTHER = {1: 90, 2: 10}, {1: 10, 2: 90}


@pytest.mark.parametrize(
    ("middle", "late", "passed", "finding"),
    [
        (0.1, 0, True, ""),
        (0.3, 0, False, "which is not by chance"),
        (0.1, 4, False, "old traffic split was still used 3 s after a change"),
    ],
)
def test_split_passes_where_the_shares_follow_soon(
    middle: float, late: int, passed: bool, finding: str
) -> None:
    run = split_run((0.9, middle, 0.9), late=late)
    findings, found = split.judge(run, (BEFORE, OTHER, BEFORE), [12, 13], (10.0, 20.0))
    assert found is passed
    assert any(finding in one for one in findings)


def test_another_split_is_clearly_another() -> None:
    assert split.another(BEFORE, {1, 2}) == OTHER
    assert split.another({2: 1}, {1, 2}) == {1: 1}
    assert split.another({1: 50, 2: 50}, {1, 2}) == {1: 90, 2: 10}


def test_split_changes_the_route_twice_and_says_so_first() -> None:
    with side(**routed()) as told:
        stage = managed(told)
        play("split", stage)
    weights = [body["split"] for path, body in told.changes if path == ROUTE]
    assert weights == [{"1": 10, "2": 90}, {"1": 90, "2": 10}]
    assert stage.said[0].startswith(
        "the traffic split of digits is 1=90 2=10; it changes to 1=10 2=90"
    )


def test_split_puts_the_route_back_when_it_is_cancelled() -> None:
    class Endless(FakeStage):
        async def perform(self, plan: LoadPlan, **more: Any) -> LoadRun:
            await more["actions"][0].do()
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

    async def cancel() -> None:
        playing = asyncio.create_task(SCENARIOS["split"].play(stage))
        await begun.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    with side(**routed()) as told:
        begun, stage = asyncio.Event(), Endless(LoadTarget(told.url, told.url, model="digits"))
        asyncio.run(cancel())
        assert told.answers[ROUTE]["split"] == {"1": 90, "2": 10}


def test_split_says_what_to_do_where_it_cannot_put_back() -> None:
    class Refused(FakeStage):
        async def perform(self, plan: LoadPlan, **more: Any) -> LoadRun:
            await more["actions"][0].do()
            told.refuses.add(ROUTE)
            return run_of(12, 50.0)

    with side(**routed()) as told:
        outcome = play("split", Refused(LoadTarget(told.url, told.url, model="digits")))
    assert outcome.passed is False
    assert "Try: servegate route set digits 1=90 2=10" in outcome.findings[0]


def test_split_refuses_a_route_that_nobody_has_set_and_changes_nothing() -> None:
    with side(**routed(**{ROUTE: {"split": {"2": 100}, "routed": False}})) as told:
        with pytest.raises(Invalid, match="has no route of its own"):
            play("split", managed(told))
        assert told.changes == []


@pytest.mark.parametrize(
    ("lost", "away", "passed"), [(0.0002, 2.5, True), (0.01, 2.5, False), (0.0, None, False)]
)
def test_kill_passes_with_few_failures_and_a_replica_that_is_back(
    lost: float, away: float | None, passed: bool
) -> None:
    run = run_of(30, 200.0, failed={"reset": lost})
    findings, found = killing.judge(run, 10.0, "local-0", away, 0, is_dead=True)
    assert found is passed
    assert (away is not None) == ("usable again 2.50 s after" in findings[1])
    assert "the only replica" in findings[-1]


def test_kill_refuses_where_no_process_is_here_and_no_command_is_given() -> None:
    with side(**routed()) as told, pytest.raises(Invalid, match="can be killed from this machine"):
        play("kill", managed(told))


def test_kill_waits_until_the_replica_holds_everything_again(tmp_path: Any) -> None:
    mark = tmp_path / "killed"
    looks = iter([replica_page("lost"), replica_page(held={"digits": [1]}), replica_page()])

    async def scene() -> killing.Victim:
        async def ask() -> list[Any]:
            return [next(looks)]

        kill = killing._by_command(f"touch {mark}")
        victim = killing.Victim(replica_page(), kill, ask, how="", others=0)
        watching = asyncio.create_task(victim.watch())
        await victim.die()
        await watching
        return victim

    victim = asyncio.run(scene())
    assert mark.exists() and victim.away is not None
    assert next(looks, None) is None


def test_a_kill_command_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(Invalid, match="no such pod"):
        asyncio.run(killing._by_command("echo no such pod >&2; exit 3")())


def cold_run(*, until: int = 5) -> LoadRun:
    """Forty seconds: nothing before `until`, slow before second 10."""
    early = run_of(40, 50.0, failed={"http_404:unknown_model": 1.0})
    warm = run_of(40, 50.0, latencies=lambda second, calls: [0.2 if second < 10 else 0.01] * calls)
    parts = [early] * until + [warm] * (40 - until)
    return run_of_seconds(40, lambda second: parts[second].record.windows[second], rate=50.0)


def test_cold_start_tells_the_first_answer_and_when_it_settled() -> None:
    findings, passed = cold_start.judge(cold_run(), 4.9)
    assert passed is True
    assert "second 5" in findings[0] and "250 calls failed" in findings[0]
    assert "stable from second 10 on" in findings[1]
    assert cold_start.judge(cold_run(until=40), None)[1] is False


def test_cold_start_unloads_then_loads_once() -> None:
    with side(**routed()) as told:
        stage = managed(told, result=lambda plan, label: cold_run())
        outcome = play("cold-start", stage)
    assert [path for path, _ in told.changes] == [UNLOAD, LOAD]
    assert outcome.passed is True
    assert stage.said[0].startswith("unloading digits now")


def test_cold_start_loads_the_model_even_when_the_run_breaks_off() -> None:
    class Breaking(FakeStage):
        async def perform(self, plan: LoadPlan, **more: Any) -> LoadRun:
            raise Invalid("the generator broke off")

    with side(**routed()) as told, pytest.raises(Invalid, match="broke off"):
        play("cold-start", Breaking(LoadTarget(told.url, told.url, model="digits")))
    assert [path for path, _ in told.changes] == [UNLOAD, LOAD]
