"""What is said of a run, in which order, and whether the generator was its limit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from workbench.loadtest.records import cell_of, generator_of, outline_of, run_of, run_of_seconds

from serve.workbench.loadtest.observed import GatewayTimes, Observed, TritonTimes
from serve.workbench.loadtest.record import NEVER_STARTED, RIGHT, CallKey, Record, RecordWindow
from serve.workbench.loadtest.reports.bottleneck import bottleneck, overload
from serve.workbench.loadtest.reports.findings import findings
from serve.workbench.loadtest.reports.report import LoadRun

TIMES = {"queue": 0.0001, "input": 0.0001, "infer": 0.004, "output": 0.0001}
TRITON = TritonTimes("2", 3000, 0, rows=3000, executions=3000, **TIMES, batches={1: 3000})
GATEWAY = GatewayTimes(3000, 0.0050, 0.0006, errors={}, retries=0, cpu=1.0, resident=10**8)


def said(run: LoadRun, words: str) -> bool:
    return any(words in sentence for sentence in findings(run))


def test_of_a_run_without_anything_special_nothing_is_said() -> None:
    run = run_of(60, 100, observed=Observed(triton=(TRITON,), gateway=GATEWAY))
    assert findings(run) == ()


def test_the_bottleneck_is_first_then_objectives_then_errors() -> None:
    run = run_of(
        60, 100, busiest=0.99, failed={"http_503:overloaded": 0.05}, objective="p99<1ms,errors<10%"
    )
    first, second, third, *_ = findings(run)
    assert first.startswith("The load generator was the bottleneck")
    assert second.startswith("The objective is not met: p99 is ")
    assert second.endswith("but p99<1ms is required.")
    assert "got no correct response: http_503:overloaded" in third


def test_errors_are_told_with_the_most_frequent_kinds() -> None:
    shares = {"http_503": 0.2, "reset": 0.1, "timeout": 0.05, "connect": 0.02}
    sentence = next(each for each in findings(run_of(60, 100, failed=shares)) if "response" in each)
    assert "of 6000 calls got no correct response: http_503 " in sentence
    assert sentence.index("http_503") < sentence.index("reset") < sentence.index("timeout")
    assert sentence.endswith("and 1 other kinds.")


def stalled(**changes: Any) -> LoadRun:
    """A run in which nothing is answered for 3 s."""

    def window(second: int) -> RecordWindow:
        is_stuck = second in (11, 12, 13)
        generator = replace(generator_of(100), ended=0 if is_stuck else 100, in_flight=3)
        times = np.full(100, 14.0 - second if is_stuck else 0.01)
        return RecordWindow({CallKey(0, RIGHT, ""): cell_of(times)}, generator)

    return replace(run_of_seconds(30, window), **changes)


def with_triton(*, config: dict[str, Any] | None = None, **changes: Any) -> LoadRun:
    facts = {"config": config} if config else {}
    return run_of(60, 100, observed=Observed(triton=(replace(TRITON, **changes),), facts=facts))


def with_gateway(**changes: Any) -> LoadRun:
    return run_of(60, 100, observed=Observed(gateway=replace(GATEWAY, **changes)))


def with_versions(share: float, slower: float) -> LoadRun:
    decisions = {"1; by=split": 1 - share, "2; by=split": share}
    return run_of(60, 100, decisions=decisions, slower={"2; by=split": slower})


HALF_REFUSED = {"http_429": 0.5}
WAITING = {"queue": 0.0126, "executions": 1000}
QUEUED = {"queue": 0.003, "rows": 64 * TRITON.requests}
ALONE = "executed each request of version 2 separately, although requests queued for 3.00 ms"
SLOWER, FEW = "Version 2 is slower than version 1: p50 2", "calls are too few for a reliable p99"
GROWING = run_of(60, 100, latencies=lambda at, calls: np.full(calls, 0.01 + 0.001 * at))
INCREASED = "The latency increased although the load did not"
ADDED = "Gateway and network add 6.00 ms to the 4.00 ms that Triton needs"


MET = run_of(60, 100, spread=0, objective="p99<50ms")
ADDING = Observed(gateway=replace(GATEWAY, whole=0.010, added=0.006))
LONGER = "On average, calls took 6.00 ms longer than the 4.00 ms that Triton reports"


@pytest.mark.parametrize(
    ("run", "words", "is_said"),
    [
        (MET, "The objective is met: p99 is 10.0", True),
        (LoadRun("a run", outline_of(10), Record()), "No calls were made.", True),
        (stalled(), "For 3 s, starting at second 11, no call got a response.", True),
        # a stall is not blamed on gateway and network
        (stalled(observed=ADDING), "Gateway and network", False),
        (stalled(observed=ADDING), LONGER, True),
        (stalled(observed=ADDING), "a stalled Triton does not count them", True),
        (run_of(20, 100, failed=HALF_REFUSED), "The intended rate was not reached", True),
        (run_of(20, 100, is_open=False, failed=HALF_REFUSED), "intended rate", False),
        (run_of(20, 100, lag=0.02), "of the calls started 10.0 ms or more after", True),
        (run_of(20, 100, failed={NEVER_STARTED: 0.05}), "calls never started, because", True),
        (run_of(20, 100, median=0.001, lag=0.0005), "Use the service time", True),
        (run_of(20, 100, median=0.01, lag=0.0005), "Use the service time", False),
        (with_triton(**WAITING), "in Triton's queue, which is 75.0 % of their", True),
        (with_triton(**WAITING), "separately", False),
        (with_triton(queue=0.003), ALONE, True),
        (with_triton(**QUEUED, config={"max_batch_size": 64}), "separately", False),
        (with_triton(**QUEUED, config={"max_batch_size": 128}), "separately", True),
        (with_versions(0.5, 2.0), SLOWER, True),
        (with_versions(0.5, 1.0), "slower than", False),
        (with_versions(0.003, 3.0), "slower than", False),  # too few calls to say
        (with_gateway(whole=0.010, added=0.006), ADDED, True),
        (with_gateway(added=None), "Gateway", False),
        (GROWING, f"{INCREASED}: p50 was 19.0 ms in the first third", True),
        (run_of(9, 100), f"900 {FEW}: only 9 of them are above it.", True),
        (run_of(11, 100), FEW, False),
        (run_of(9, 9, observed=Observed(problems=("No metrics.",))), "No metrics.", True),
    ],
)
def test_what_is_worth_a_sentence_is_said_and_nothing_else(
    run: LoadRun, words: str, is_said: bool
) -> None:
    assert said(run, words) is is_said, findings(run)


# --- the generator as the limit -------------------------------------------------------------------


def window_of(
    latency: float, *, calls: int = 100, lag: float = 0.0002, waiting: int = 0, busy: float = 0.3
) -> RecordWindow:
    """All calls alike; their service time is the latency without the lag."""
    service = np.full(calls, latency - lag)
    cells = {CallKey(0, RIGHT, ""): cell_of(np.full(calls, latency), service=service)}
    in_flight = 1000 if waiting else 2
    return RecordWindow(
        cells, generator_of(calls, lag=lag, waiting=waiting, busiest=busy, in_flight=in_flight)
    )


def test_a_generator_with_time_is_no_bottleneck() -> None:
    run = run_of(30, 100)
    assert bottleneck(run) == ""
    assert overload(run) == ""


def test_a_busy_process_is_the_bottleneck() -> None:
    sentence = bottleneck(run_of_seconds(20, lambda at: window_of(0.01, busy=0.97)))
    assert sentence.startswith("The load generator was the bottleneck, not the server")
    assert "more than 85.0 % of a core in 100 % of the seconds" in sentence


def test_a_process_that_is_busy_for_a_moment_is_no_bottleneck() -> None:
    assert not bottleneck(run_of_seconds(20, lambda at: window_of(0.01, busy=1 if at < 2 else 0.3)))


def test_starts_that_lag_by_themselves_are_the_bottleneck() -> None:
    sentence = bottleneck(run_of_seconds(20, lambda at: window_of(0.050, lag=0.020)))
    assert "it started calls late by 20.0 ms (p99)" in sentence
    assert "p99 latency of 50.0 ms" in sentence


@pytest.mark.parametrize(("latency", "lag"), [(0.005, 0.004), (1.0, 0.02)])
def test_a_lag_of_a_time_slice_or_a_small_part_of_the_latency_is_none(
    latency: float, lag: float
) -> None:
    assert bottleneck(run_of_seconds(20, lambda at: window_of(latency, lag=lag))) == ""


def test_a_lag_behind_a_slow_server_is_not_the_generator_s() -> None:
    def window(at: int) -> RecordWindow:
        is_full = at >= 5
        return window_of(
            3.0 if is_full else 0.01, lag=1.0 if is_full else 0.0, waiting=50 * is_full
        )

    run = run_of_seconds(20, window)
    assert bottleneck(run) == ""
    assert overload(run).startswith(
        "The server did not keep up: in 75.0 % of the seconds, all 1000"
    )


def test_connections_that_run_out_at_once_may_be_either_s_fault() -> None:
    run = run_of_seconds(20, lambda at: window_of(0.5, lag=0.49, waiting=10 * at + 1), most=4)
    sentence = bottleneck(run)
    assert "up to 191 calls waited for a connection" in sentence
    assert "all 4 were in use" in sentence
    assert "used 30.0 % of a core" in sentence
    assert "--connections" in sentence
    assert "the server does not keep up" in sentence
    assert overload(run) == ""


def test_connections_that_run_out_while_answers_stay_fast_are_too_few() -> None:
    def window(at: int) -> RecordWindow:
        is_full = at >= 10
        return window_of(0.5 if is_full else 0.01, lag=0.49 if is_full else 0, waiting=9 * is_full)

    assert "--connections" in bottleneck(run_of_seconds(20, window))
