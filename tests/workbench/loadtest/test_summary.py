"""What a run comes to: which calls count in a latency, which seconds in a rate; objectives; ratios.

Ratios of two measurements find what differs, and claim no more than they know.
"""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from workbench.loadtest.records import cell_of, generator_of, outline_of, run_of, run_of_seconds

from serve.core.errors import Invalid
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
from serve.workbench.loadtest.reports.comparison import Ratio, compare, student, verdict
from serve.workbench.loadtest.reports.counts import is_served, is_waited, span
from serve.workbench.loadtest.reports.objectives import MEASURES, judge, parse_objective
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
    quick = (BROKEN, NOT_CONNECTED, MALFORMED, "http_429:overloaded", "http_503")
    quick += ("grpc_UNAVAILABLE",)
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
    each = [(lane, version) for lane in ("grpc", "http-json") for version in ("", "2", "10")]
    assert [(row.lane, row.version) for row in found] == each
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


# --- objectives -----------------------------------------------------------------------------------


def test_a_condition_is_read_with_its_unit() -> None:
    conditions = {
        "p99<20ms": ("p99", "<", 0.020),
        "p50 < 1.5s": ("p50", "<", 1.5),
        "p90<=800us": ("p90", "<=", 0.0008),
        "P95<2m": ("p95", "<", 120),
        "p999<1s": ("p99.9", "<", 1.0),
        "p99.9<1s": ("p99.9", "<", 1.0),
        "mean<3ms": ("mean", "<", 0.003),
        "max<1s": ("max", "<", 1.0),
        "errors<0.1%": ("errors", "<", 0.001),
        "errors<=0%": ("errors", "<=", 0.0),
        "late<1 %": ("late", "<", 0.01),
        "achieved>99%": ("achieved", ">", 0.99),
        "top1>=97%": ("top1", ">=", 0.97),
        "rate>180": ("rate", ">", 180),
        "rate>180/s": ("rate", ">", 180),
    }
    for text, (name, sign, limit) in conditions.items():
        (found,) = parse_objective(text)
        assert (found.name, found.sign, found.limit) == (name, sign, pytest.approx(limit)), text


def test_an_objective_is_all_of_its_conditions_and_is_read_as_it_is_written() -> None:
    found = parse_objective(" p99<20ms , errors<0.1%,rate>180 ")
    assert [str(each) for each in found] == ["p99<20ms", "errors<0.1%", "rate>180"]
    for measure in MEASURES.values():
        (condition,) = parse_objective(measure.example)
        assert str(condition) == measure.example


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (text, "a name, < or >, and a number")
            for text in ("", "p99<20ms,", "p99", "p99=20ms", "p99<-1ms")
        ),
        ("p98<20ms", "allowed names: p50, p90, p95, p99, p99.9, mean, max, errors"),
        ("speed>3", "allowed names"),
        ("p99<20", "the unit of p99 is us or µs or ms or s or m"),
        ("p99<20%", "the unit of p99 is"),
        ("errors<0.001", "the unit of errors is %"),
        ("rate>180ms", "the unit of rate is"),
        ("p99>20ms", "smaller values of p99 are better"),
        ("achieved<99%", "larger values of achieved are better"),
        ("errors<101%", "every run would meet it, or none"),
    ],
)
def test_what_is_no_condition_is_invalid_and_says_what_is_known(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        parse_objective(text)
    assert parse_objective(caught.value.try_this)


def test_a_run_is_judged_condition_by_condition() -> None:
    run = run_of(30, 100, median=0.010, failed={"http_503": 0.05})
    judged = judge(parse_objective("p50<12ms,p50<5ms,errors<10%,errors<1%,rate>90,rate>99"), run)
    assert [each.passed for each in judged] == [True, False, True, False, True, False]
    assert judged[0].value == pytest.approx(0.010, rel=0.1)
    assert judged[2].value == pytest.approx(0.05, abs=0.02)


def test_top1_is_the_share_of_right_answers_among_the_answers() -> None:
    run = run_of(30, 100, failed={WRONG: 0.02, "connect": 0.5}, checked=True)
    (top1,) = judge(parse_objective("top1>90%"), run)
    assert top1.passed
    assert top1.value == pytest.approx(0.96, abs=0.02)


def test_what_could_not_be_measured_does_not_pass() -> None:
    unchecked, empty = run_of(5, 10), run_of(5, 0)
    (top1,) = judge(parse_objective("top1>1%"), unchecked)
    (p99,) = judge(parse_objective("p99<10s"), empty)
    assert not top1.passed
    assert not p99.passed
    assert str(p99) == "p99 could not be measured (p99<10s: not met)"


# --- ratios ---------------------------------------------------------------------------------------


def ratios(before: list[LoadRun], after: list[LoadRun]) -> dict[str, Ratio]:
    return {ratio.name: ratio for ratio in compare(before, after)}


def wandering(seed: int, *, median: float = 0.010, calls: int = 50) -> LoadRun:
    """A server whose seconds differ from each other as its calls do."""
    draws = np.random.default_rng(seed)

    def window(_: int) -> RecordWindow:
        middle = median * math.exp(0.1 * draws.standard_normal())
        times = middle * np.exp(0.4 * draws.standard_normal(calls))
        return RecordWindow({CallKey(0, RIGHT, ""): cell_of(times)}, generator_of(calls))

    return run_of_seconds(60, window, rate=calls)


def test_a_slower_run_has_a_ratio_above_one_and_an_interval_that_holds_the_truth() -> None:
    found = ratios([run_of(60, 100, seed=3)], [run_of(60, 100, seed=4, median=0.012)])
    for name in ("p50", "p90", "mean"):
        assert found[name].low < 1.2 < found[name].high
        assert verdict(found[name]) == "slower"
    assert found["p99"].low < found["p99"].ratio < found["p99"].high


def test_errors_are_compared_by_the_share_of_right_answers() -> None:
    found = ratios([run_of(60, 100, seed=1)], [run_of(60, 100, seed=2, failed={"reset": 0.2})])
    assert (found["right"].before, verdict(found["right"])) == (1.0, "worse")
    assert found["right"].low < 0.8 < found["right"].high
    assert verdict(found["rate"]) == "slower"


def test_what_is_zero_on_a_side_has_no_ratio() -> None:
    dead = run_of(20, 50, failed={"connect": 1.0})
    assert set(ratios([run_of(20, 50)], [dead])) == set()
    assert compare([], [dead]) == ()


@pytest.mark.slow
def test_an_interval_over_seconds_holds_the_truth_as_often_as_it_says() -> None:
    """Of 100 pairs without a difference some 95 hold 1; fewer than 88 would be a wrong interval."""
    pairs = [(wandering(2 * at, calls=20), wandering(2 * at + 1, calls=20)) for at in range(100)]
    p50 = [ratios([before], [after])["p50"] for before, after in pairs]
    assert 88 <= sum(each.low <= 1 <= each.high for each in p50) < 100


def test_three_runs_of_each_side_are_compared_in_pairs() -> None:
    """Days differ by a factor of two, and each pair by 1.1: the pairs see nothing but that."""
    days = (0.010, 0.020, 0.014, 0.018)
    before = [wandering(at, median=day) for at, day in enumerate(days)]
    after = [wandering(10 + at, median=1.1 * day) for at, day in enumerate(days)]
    p50 = ratios(before, after)["p50"]
    assert p50.low < 1.1 < p50.high
    assert p50.high / p50.low < 1.3
    medians = [math.log(summary.total(run).latency.p50) for run in before]
    assert p50.before == pytest.approx(math.exp(sum(medians) / 4), rel=1e-6)


def test_pairs_that_disagree_have_a_wide_interval() -> None:
    before = [wandering(at) for at in range(3)]
    after = [wandering(9, median=0.01), wandering(8, median=0.02), wandering(7, median=0.005)]
    p50 = ratios(before, after)["p50"]
    assert p50.low < 0.5
    assert p50.high > 2
    assert verdict(p50) == "no difference seen"


def test_student_s_quantiles_are_those_of_the_tables() -> None:
    table = {2: 4.303, 10: 2.228, 11: 2.201, 20: 2.086, 100: 1.984}
    assert {each: student(each) for each in table} == pytest.approx(table, abs=1.5e-3)


def test_a_verdict_knows_what_is_better() -> None:
    less, same, more = (0.8, 0.7, 0.9), (1.0, 0.9, 1.1), (1.2, 1.1, 1.3)
    assert verdict(Ratio("mean", *same)) == "no difference seen"
    for name, words in (
        ("p50", ("faster", "slower")),
        ("rate", ("slower", "faster")),
        ("right", ("worse", "better")),
    ):
        assert tuple(verdict(Ratio(name, *each)) for each in (less, more)) == words
