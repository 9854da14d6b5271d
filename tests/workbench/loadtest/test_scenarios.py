"""Scenarios that change nothing: what each makes of its runs."""

from typing import Any

import pytest
from refusals import refusal
from workbench.loadtest.fake_sides import side
from workbench.loadtest.fake_stage import bare, managed, play
from workbench.loadtest.records import run_of, run_of_seconds

from serve.core.errors import Invalid
from serve.workbench.loadtest.observed import Observed, ObservedSeries
from serve.workbench.loadtest.plan import LaneProtocol, LoadPlan
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios import overload, soak
from serve.workbench.loadtest.scenarios.catalogue import SCENARIOS, scenario_of

CONFIG = "/v2/models/digits/config"


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
