"""Scenarios on a stage by script: what each makes of its runs, and what it changes is put back."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal
from workbench.loadtest.fake_sides import Side, replica_page, side
from workbench.loadtest.records import run_of, run_of_seconds

from serve.core.errors import Invalid
from serve.workbench.loadtest.observed import Observed, ObservedSeries
from serve.workbench.loadtest.observed_run import Action
from serve.workbench.loadtest.observer import LoadTarget
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan, Payload
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios import cold_start, overload, soak, split
from serve.workbench.loadtest.scenarios import kill as killing
from serve.workbench.loadtest.scenarios.catalogue import SCENARIOS, scenario_of

CONFIG, ROUTE = "/v2/models/digits/config", "/api/routes/digits"
LOAD, UNLOAD = "/api/models/digits/load", "/api/models/digits/unload"


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


def managed(told: Side, kind: type[FakeStage] = FakeStage, **more: Any) -> FakeStage:
    return kind(LoadTarget(told.url, told.url, model="digits"), **more)


def routed(**more: Any) -> dict[str, Any]:
    """A control plane with two versions, split 90 to 10."""
    versions = [{"version": one, "state": "ready", "replicas": ["local-0"]} for one in (1, 2)]
    return {
        ROUTE: {"split": {"1": 90, "2": 10}, "routed": True},
        "/api/models/digits": {"name": "digits", "versions": versions},
        "/api/replicas": [replica_page()],
    } | more


# --- scenarios that change nothing ----------------------------------------------------------------


def test_the_catalogue_has_eight_scenarios_and_names_them_to_who_asks_for_another() -> None:
    assert len(SCENARIOS) == 8
    with pytest.raises(Invalid, match="smoke, soak, overload"):
        scenario_of("chaos")


def test_scenarios_that_need_a_gateway_say_so_to_a_bare_triton() -> None:
    for name in ("split", "kill", "cold-start", "direct"):
        assert "needs a gateway" in str(refusal(Invalid, play, name, bare()))


def smoked(**more: Any) -> Any:
    run = run_of(10, 50.0, protocols=tuple(LaneProtocol), **more)
    return play("smoke", bare(result=lambda plan, label: run))


@pytest.mark.parametrize(
    ("failed", "passed", "finding"),
    [
        ({}, True, "none of 500 calls failed"),
        ({"http_500": 0.02}, False, "http_500"),
        ({"wrong_answer": 0.1}, True, ""),  # a model is sometimes wrong
        ({"wrong_answer": 0.9}, False, ""),
    ],
)
def test_smoke_passes_when_nothing_fails(failed: Any, passed: bool, finding: str) -> None:
    outcome = smoked(failed=failed)
    assert outcome.passed is passed
    assert finding in outcome.findings[0]


def test_smoke_fails_where_a_protocol_was_never_used() -> None:
    silent = run_of(10, 1.0, protocols=tuple(LaneProtocol), failed={})
    for window in silent.record.windows.values():
        for key in [key for key in window.cells if key.lane == 2]:
            del window.cells[key]
    outcome = play("smoke", bare(result=lambda plan, label: silent))
    assert outcome.passed is False
    assert any("no call used grpc" in one for one in outcome.findings)


def test_a_run_that_was_stopped_is_neither_passed_nor_failed() -> None:
    run = run_of(10, 50.0, protocols=tuple(LaneProtocol))
    stopped = LoadRun(run.label, {**run.outline, "stopped_after": 3.0}, run.record)
    assert play("smoke", bare(result=lambda plan, label: stopped)).passed is None


def memory(first: float, last: float, *, of: str = "worker-0") -> ObservedSeries:
    values = tuple(first + (last - first) * n / 99 for n in range(100))
    return ObservedSeries("gateway", of, "memory", "B", tuple(map(float, range(100))), values)


def soaked(*series: ObservedSeries, slow: float = 1.0) -> Any:
    run = run_of(
        100,
        50.0,
        latencies=lambda second, calls: [0.02 * (slow if second >= 70 else 1)] * calls,
        observed=Observed(series=series),
    )
    return play("soak", bare(result=lambda plan, label: run))


def test_soak_finds_memory_that_grows() -> None:
    assert soaked(memory(100e6, 105e6)).passed is True
    outcome = soaked(memory(100e6, 105e6), memory(100e6, 300e6, of="local-0"))
    assert outcome.passed is False
    assert "memory of local-0 grew from 1" in outcome.findings[0]


def test_soak_finds_a_latency_that_rises_but_forgives_one_stall() -> None:
    assert soaked(slow=2.0).passed is False
    run = run_of(100, 50.0, latencies=lambda second, calls: [2.0 if second == 90 else 0.02] * calls)
    assert soak.slowdown(run)[0] is False


def steps(*, slow_after: float = 0.01, lost: float = 0.0) -> LoadRun:
    """Six steps of 5 s: most of the third and fourth are refused."""
    shed = run_of(30, 100.0, failed={"http_429:overloaded": 0.5, "timeout": lost})
    calm = run_of(30, 100.0, median=0.01, spread=0.1)
    slow = run_of(30, 100.0, median=slow_after, spread=0.1)
    parts = [calm] * 10 + [shed] * 10 + [calm] * 5 + [slow] * 5
    return run_of_seconds(30, lambda second: parts[second].record.windows[second])


@pytest.mark.parametrize(
    ("run", "passed", "finding"),
    [
        (steps(), True, "refused (429, 503)"),
        (steps(slow_after=0.2), False, "did not recover"),
        (steps(lost=0.2), False, "without being refused"),
    ],
)
def test_overload_passes_where_too_much_is_refused_and_the_rest_comes_back(
    run: LoadRun, passed: bool, finding: str
) -> None:
    findings, found = overload.judge(run, 100.0)
    assert found is passed
    assert any(finding in one for one in findings)


def test_overload_probes_first_and_steps_to_twice_what_it_finds() -> None:
    with side(**{CONFIG: {"max_batch_size": 8}}) as told:
        stage = managed(
            told, result=lambda plan, label: run_of(6, 200.0, is_open=plan.closed is None)
        )
        play("overload", stage)
    probe, stepped = stage.plans
    assert probe.closed is not None and stepped.arrivals is not None
    assert stepped.arrivals.levels[3] == pytest.approx(2 * stepped.arrivals.rate)
    assert stepped.lanes[0].protocol is LaneProtocol.HTTP_JSON
    assert stepped.lanes[0].payloads[0].rows == 8


def test_batch_sweep_finds_the_size_with_the_most_rows() -> None:
    def result(plan: LoadPlan, label: str) -> LoadRun:
        rows = plan.lanes[0].payloads[0].rows
        return run_of(8, {1: 200.0, 2: 150.0, 4: 50.0}[rows], rows=rows, label=label, is_open=False)

    with side(**{CONFIG: {"max_batch_size": 4}}) as told:
        outcome = play("batch-sweep", managed(told, result=result))
    assert (outcome.sweep.xs, outcome.sweep.ys) == ((1.0, 2.0, 4.0), (200.0, 300.0, 200.0))
    assert outcome.findings[0].startswith("batches of 2 give the highest throughput")
    assert outcome.passed is True


def test_a_model_that_does_not_suit_the_scenario_is_refused() -> None:
    with side(**{CONFIG: {"max_batch_size": 0}}) as told:
        assert "does not support batches" in str(
            refusal(Invalid, play, "batch-sweep", managed(told))
        )
    with side(**{"/api/snapshot": {"snapshot": {"models": {}, "replicas": {}}}}) as told:
        assert "no replica" in str(refusal(Invalid, play, "direct", managed(told)))


TARGET = {"physical_name": "digits--2", "physical_version": 1, "replicas": ["local-0"]}
SNAPSHOT = {
    "models": {"digits": {"split": {"2": 100}, "targets": {"2": TARGET}}},
    "replicas": {"local-0": {"address": "10.0.0.5:81:82:83", "pool": "default"}},
}


def test_direct_asks_both_sides_for_the_same_version_in_turns() -> None:
    def result(plan: LoadPlan, label: str) -> LoadRun:
        median = 0.010 if label.startswith("direct") else 0.011
        return run_of(10, 100.0, median=median, spread=0.05, label=label)

    with side(**{"/api/snapshot": {"snapshot": SNAPSHOT}}) as told:
        stage = managed(told, result=result)
        outcome = play("direct", stage)
    lanes = [plan.lanes[0] for plan in stage.plans]
    assert [label.partition(",")[0] for label in stage.labels] == (
        ["gateway", "direct", "direct", "gateway", "gateway", "direct"]
    )
    assert {(lane.address, lane.path) for lane in lanes} == {
        ("gateway:80", "/in/front/v2/models/digits/versions/2/infer"),
        ("10.0.0.5:81", "/in/front/v2/models/digits--2/versions/1/infer"),
    }
    assert outcome.passed is True
    assert any("p50 through the gateway is 1.1" in one for one in outcome.findings)
    assert outcome.findings[0].startswith("the gateway adds")


# --- scenarios that change something --------------------------------------------------------------


def split_run(middle: float, late: int) -> LoadRun:
    """Thirty seconds: version 1 has 90 %, then another share, and from second 20 on 90 % again."""

    def third(number: int, share: float) -> LoadRun:
        told = f"by=split; generation={11 + number}"
        decisions = {f"1; {told}": share, f"2; {told}": 1 - share}
        return run_of(30, 100.0, decisions=decisions, seed=number)

    first, second, last = (third(*each) for each in enumerate((0.9, middle, 0.9)))
    parts = [first] * (10 + late) + [second] * (10 - late) + [last] * 10
    return run_of_seconds(30, lambda at: parts[at].record.windows[at])


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
    run = split_run(middle, late)
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
        begun, stage = asyncio.Event(), managed(told, Endless)
        asyncio.run(cancel())
        assert told.answers[ROUTE]["split"] == {"1": 90, "2": 10}


def test_split_says_what_to_do_where_it_cannot_put_back() -> None:
    class Refused(FakeStage):
        async def perform(self, plan: LoadPlan, **more: Any) -> LoadRun:
            await more["actions"][0].do()
            told.refuses.add(ROUTE)
            return run_of(12, 50.0)

    with side(**routed()) as told:
        outcome = play("split", managed(told, Refused))
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


def test_kill_waits_until_the_replica_holds_everything_again(tmp_path: Path) -> None:
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
        play("cold-start", managed(told, Breaking))
    assert [path for path, _ in told.changes] == [UNLOAD, LOAD]
