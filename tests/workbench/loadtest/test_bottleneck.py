"""Whether the generator was the limit of a run: evidence for it, and what is none."""

import numpy as np
import pytest
from workbench.loadtest.records import cell_of, generator_of, run_of, run_of_seconds

from serve.workbench.loadtest.record import RIGHT, CallKey, RecordWindow
from serve.workbench.loadtest.reports.bottleneck import bottleneck, overload


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
