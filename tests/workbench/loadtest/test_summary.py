"""What a run comes to: which calls count in a latency, and which seconds in a rate."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from workbench.loadtest.records import cell_of, outline_of, run_of

from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.plan import LaneProtocol
from serve.workbench.loadtest.record import (
    BROKEN,
    MALFORMED,
    NEVER_STARTED,
    NOT_CONNECTED,
    RIGHT,
    TIMED_OUT,
    WRONG,
    CallKey,
    GeneratorLoad,
    Record,
    RecordCell,
    RecordWindow,
)
from serve.workbench.loadtest.reports import summary
from serve.workbench.loadtest.reports.counts import is_served, is_waited, span
from serve.workbench.loadtest.reports.report import LoadRun


def run_of_cells(
    seconds: float, windows: Mapping[int, Mapping[CallKey, RecordCell]], **outline: float
) -> LoadRun:
    record = Record()
    for second, cells in windows.items():
        record.add(second, RecordWindow(dict(cells)))
    return LoadRun("a run", {**outline_of(seconds), **outline}, record)


RIGHT_CALLS = CallKey(0, RIGHT, "")


def test_calls_that_were_answered_or_waited_in_vain_count_in_a_latency() -> None:
    waited = (RIGHT, WRONG, TIMED_OUT, NEVER_STARTED, "http_504", "http_504:deadline_exceeded")
    quick = (
        BROKEN,
        NOT_CONNECTED,
        MALFORMED,
        "http_429:overloaded",
        "http_503",
        "grpc_UNAVAILABLE",
    )
    assert [each for each in (*waited, *quick) if is_waited(each)] == [*waited]
    assert [each for each in waited if not is_served(each)] == [NEVER_STARTED]


def test_fast_refusals_do_not_flatter_the_latency() -> None:
    refusing = summary.total(run_of(20, 100, failed={"http_429": 0.6}, failing=0.0005))
    assert refusing.latency.p50 == pytest.approx(0.010, rel=0.1)
    assert refusing.errors == {"http_429": refusing.failed}
    assert refusing.error_share == pytest.approx(0.6, abs=0.03)


def test_timeouts_and_calls_that_never_started_are_in_the_latency_with_their_time() -> None:
    cells = {
        RIGHT_CALLS: cell_of([0.01] * 90),
        CallKey(0, TIMED_OUT, ""): cell_of([2.0] * 6),
        CallKey(0, NEVER_STARTED, ""): RecordCell(Histogram.of([5.0] * 4)),
    }
    row = summary.total(run_of_cells(1, {0: cells}))
    assert row.latency.count == 100
    assert row.latency.p99 == pytest.approx(5.0, rel=1e-3)
    assert row.service.count == 96
    assert row.service.largest == pytest.approx(2.0, rel=1e-3)
    assert (row.calls, row.right, row.failed) == (100, 90, 10)
    assert summary.never_started(run_of_cells(1, {0: cells})) == 4


def test_the_quantiles_are_those_of_the_calls() -> None:
    times = np.arange(1, 1001) / 1000
    row = summary.total(run_of_cells(1, {0: {RIGHT_CALLS: cell_of(times)}}))
    found = row.latency
    told = (found.p50, found.p90, found.p95, found.p99, found.p999, found.largest)
    assert told == pytest.approx((0.5, 0.9, 0.95, 0.99, 0.999, 1.0), rel=1e-3)
    assert found.mean == pytest.approx(0.5005, rel=1e-3)


def test_a_rate_is_over_the_whole_seconds_that_were_run() -> None:
    windows = {second: {RIGHT_CALLS: cell_of([0.0] * 10)} for second in range(4)}
    for seconds, more, counted in ((3.5, {}, 3), (60, {}, 4), (60, {"stopped_after": 3.4}, 3)):
        run = run_of_cells(seconds, windows, **more)
        assert span(run) == counted
        assert (summary.intended_rate(run), summary.total(run).rate) == (10, 10)
    assert summary.total(run_of(10, 50, rows=8, median=1e-6)).rows_rate == pytest.approx(400)
    late = run_of_cells(10, {second: {RIGHT_CALLS: cell_of([5.0] * 100)} for second in range(10)})
    assert summary.total(late).rate == pytest.approx(50, rel=1e-3)
    assert (summary.intended_rate(late), summary.achieved(late)) == (100, 1.0)


def test_a_run_without_calls_has_no_numbers() -> None:
    run = run_of_cells(10, {})
    row = summary.total(run)
    assert row.calls == 0
    assert math.isnan(row.latency.p99)
    assert math.isnan(row.rate)
    assert math.isnan(row.error_share)
    assert math.isnan(summary.achieved(run))
    assert math.isnan(summary.late_share(run))
    assert summary.rows(run) == ()
    assert summary.over_time(run) == ()


def test_rows_are_lanes_followed_by_their_versions() -> None:
    run = run_of(
        10,
        100,
        protocols=(LaneProtocol.GRPC, LaneProtocol.HTTP_JSON),
        decisions={"10; by=split": 0.3, "2; by=label:stable": 0.3, "2; by=split": 0.4},
    )
    found = summary.rows(run)
    assert [(row.lane, row.version) for row in found] == [
        ("grpc", ""),
        ("grpc", "2"),
        ("grpc", "10"),
        ("http-json", ""),
        ("http-json", "2"),
        ("http-json", "10"),
    ]
    assert found[0].protocol == "grpc"
    assert found[0].calls == found[1].calls + found[2].calls
    assert found[0].calls + found[3].calls == summary.total(run).calls == 1000


def test_routes_are_shares_of_the_calls_that_told_a_decision() -> None:
    run = run_of(
        10, 100, failed={"connect": 0.5}, decisions={"1; by=split": 0.9, "2; by=hint": 0.1}
    )
    first, second = summary.routes(run)
    assert (first.version, first.by) == ("1", "split")
    assert (second.version, second.by) == ("2", "hint")
    assert first.share + second.share == pytest.approx(1)
    assert first.share == pytest.approx(0.9, abs=0.05)


def test_late_calls_are_those_that_started_late_or_never() -> None:
    record = Record()
    lags = Histogram.of([0.001] * 90 + [0.020] * 6)
    cells = {RIGHT_CALLS: cell_of([0.01] * 96), CallKey(0, NEVER_STARTED, ""): cell_of([1.0] * 4)}
    record.add(0, RecordWindow(cells, GeneratorLoad(lag=lags)))
    assert summary.late_share(LoadRun("a run", outline_of(1), record)) == pytest.approx(0.10)


def test_a_long_run_s_instants_are_several_seconds_wide() -> None:
    found = summary.over_time(run_of(25, 10), most=10)
    assert [(each.second, each.width) for each in found][-2:] == [(21, 3), (24, 1)]
    assert all(each.intended == 10 for each in found)
