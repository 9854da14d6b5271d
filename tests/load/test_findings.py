"""What is said of a run, and in which order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from load.records import cell_of, generator_of, outline_of, run_of

from serve.load.observed import GatewayTimes, Observed, TritonTimes
from serve.load.recording import NEVER_STARTED, RIGHT, TIMED_OUT, Generator, Key, Record, Window
from serve.load.reporting.findings import findings
from serve.load.reporting.report import Run

TRITON = TritonTimes(
    version="2",
    requests=3000,
    failures=0,
    rows=3000,
    executions=3000,
    queue=0.0001,
    input=0.0001,
    infer=0.004,
    output=0.0001,
    batches={1: 3000},
)
GATEWAY = GatewayTimes(
    calls=3000, whole=0.0050, added=0.0006, errors={}, retries=0, cpu=1.0, resident=10**8
)


def said(run: Run, words: str) -> bool:
    return any(words in sentence for sentence in findings(run))


def test_of_a_run_without_anything_special_nothing_is_said() -> None:
    run = run_of(60, 100, observed=Observed(triton=(TRITON,), gateway=GATEWAY))
    assert findings(run) == ()


def test_the_bottleneck_is_first_then_objectives_then_errors() -> None:
    run = run_of(
        60, 100, busiest=0.99, failed={"http_503:overloaded": 0.05}, objective="p99<1ms,errors<10%"
    )
    first, second, third, *_ = findings(run)
    assert first.startswith("The load generator was the limit")
    assert second.startswith("The objective is not met: p99 is ")
    assert second.endswith("and p99<1ms was asked.")
    assert "got no right answer: http_503:overloaded" in third


def test_an_objective_that_is_met_is_told_with_its_numbers() -> None:
    (sentence,) = findings(run_of(60, 100, spread=0, objective="p99<50ms,errors<1%"))
    assert sentence == "The objective is met: p99 is 10.0 ms, errors is 0 %."


def test_errors_are_told_with_the_most_frequent_kinds() -> None:
    shares = {"http_503": 0.2, "reset": 0.1, "timeout": 0.05, "connect": 0.02}
    sentence = next(each for each in findings(run_of(60, 100, failed=shares)) if "answer" in each)
    assert "of 6000 calls got no right answer: http_503 " in sentence
    assert sentence.index("http_503") < sentence.index("reset") < sentence.index("timeout")
    assert sentence.endswith("and 1 more kinds.")


def test_a_run_without_calls_is_told_as_that() -> None:
    assert findings(Run("a run", outline_of(10), Record())) == ("No call was made.",)


def test_a_rate_that_is_not_reached_is_told() -> None:
    run = run_of(20, 100, failed={"http_429": 0.5})
    assert said(run, "The intended rate was not reached")
    assert said(run, "of 100/s.")
    assert not said(run_of(20, 100, is_open=False, failed={"http_429": 0.5}), "intended rate")


def stalled(**changes: Any) -> Run:
    """A run in which nothing is answered for 3 s."""
    record = Record()
    for second in range(30):
        is_stuck = second in (11, 12, 13)
        generator = replace(generator_of(100), ended=0 if is_stuck else 100, in_flight=3)
        times = np.full(100, 14.0 - second if is_stuck else 0.01)
        record.add(second, Window({Key(0, RIGHT, ""): cell_of(times)}, generator))
    return Run("a run", outline_of(30), record, **changes)


def test_a_stall_is_told_with_its_seconds() -> None:
    assert said(stalled(), "For 3 s, from second 11 on, not one call was answered.")


def test_a_stall_is_not_blamed_on_gateway_and_network() -> None:
    run = stalled(observed=Observed(gateway=replace(GATEWAY, whole=0.010, added=0.006)))
    assert not said(run, "Gateway and network")
    assert said(run, "On average calls took 6.00 ms longer than the 4.00 ms that Triton counts")
    assert said(run, "a Triton that stands still does not count them")


def test_calls_that_take_seconds_are_no_stall() -> None:
    record = Record()
    for second in range(30):
        ended = 1 if second % 4 == 3 else 0
        cells = {Key(0, RIGHT, ""): cell_of([4.0])} if second % 4 == 0 else {}
        record.add(second, Window(cells, Generator(ended=ended, in_flight=1)))
    assert not said(Run("a run", outline_of(30), record), "not one call")


def test_late_starts_and_calls_that_never_started_are_told() -> None:
    run = run_of(20, 100, lag=0.02, failed={NEVER_STARTED: 0.05})
    assert said(run, "of calls started 10.0 ms or more after their time.")
    assert said(run, "calls never started: the run was over before a connection was free.")


def test_a_lag_that_is_a_part_of_a_short_latency_is_told() -> None:
    assert said(run_of(20, 100, median=0.001, lag=0.0005), "look at the service time")
    assert not said(run_of(20, 100, median=0.01, lag=0.0005), "look at the service time")


def test_a_queue_in_triton_is_told_with_its_share() -> None:
    observed = Observed(triton=(replace(TRITON, queue=0.0126, executions=1000),))
    run = run_of(60, 100, observed=observed)
    assert said(run, "Requests of version 2 wait 12.6 ms in Triton's queue, 75.0 % of their time")
    assert not said(run, "alone")


def test_requests_that_queue_and_are_executed_alone_are_told() -> None:
    run = run_of(60, 100, observed=Observed(triton=(replace(TRITON, queue=0.003),)))
    assert said(run, "executed every request of version 2 alone, although they queued for 3.00 ms")


def test_requests_that_are_as_large_as_a_batch_may_be_executed_alone() -> None:
    times = replace(TRITON, queue=0.003, rows=64 * TRITON.requests)
    observed = Observed(triton=(times,), facts={"config": {"max_batch_size": 64}})
    assert not said(run_of(60, 100, observed=observed), "alone")
    wider = replace(observed, facts={"config": {"max_batch_size": 128}})
    assert said(run_of(60, 100, observed=wider), "alone")


def test_a_version_that_is_much_slower_is_told_with_both_numbers() -> None:
    decisions = {"1; by=split": 0.5, "2; by=split": 0.5}
    run = run_of(60, 100, decisions=decisions, slower={"2; by=split": 2.0})
    assert said(run, "Version 2 is slower than version 1: p50 2")
    assert not said(run_of(60, 100, decisions=decisions), "slower than")


def test_a_slow_version_with_few_calls_is_not_told() -> None:
    decisions = {"1; by=split": 0.99, "2; by=split": 0.01}
    run = run_of(20, 100, decisions=decisions, slower={"2; by=split": 3.0})
    assert not said(run, "slower than")


def test_time_that_the_gateway_adds_is_told_where_it_is_a_large_part() -> None:
    slow = replace(GATEWAY, whole=0.010, added=0.006)
    run = run_of(60, 100, observed=Observed(gateway=slow))
    assert said(run, "Gateway and network add 6.00 ms to the 4.00 ms that Triton takes")
    unknown = replace(GATEWAY, added=None)
    assert findings(run_of(60, 100, observed=Observed(gateway=unknown))) == ()


def test_a_latency_that_grows_under_the_same_load_is_told() -> None:
    run = run_of(60, 100, latencies=lambda at, calls: np.full(calls, 0.01 + 0.001 * at))
    assert said(run, "The latency grew while the load did not: p50 19.0 ms in the first third")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (9, "900 calls are few for p99: only 9.00 of them are beyond it."),
        (1, "100 calls are few for p99"),
    ],
)
def test_a_quantile_of_few_calls_is_told_as_that(seconds: int, words: str) -> None:
    assert said(run_of(seconds, 100), words)
    assert not said(run_of(11, 100), "are few")


def test_timeouts_are_named() -> None:
    assert said(run_of(20, 100, failed={TIMED_OUT: 0.01}, failing=2.0), "timeout ")


def test_what_could_not_be_asked_is_last() -> None:
    observed = Observed(problems=("The metrics port does not answer.",))
    run = run_of(60, 100, observed=observed, objective="p99<1ms")
    assert findings(run)[-1] == "The metrics port does not answer."
