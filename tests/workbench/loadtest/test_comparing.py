"""Ratios of two measurements: they find what differs, and claim no more than they know."""

import math

import numpy as np
import pytest
from workbench.loadtest.records import cell_of, generator_of, run_of, run_of_seconds

from serve.workbench.loadtest.record import RIGHT, CallKey, RecordWindow
from serve.workbench.loadtest.reports.comparison import Ratio, compare, student, verdict
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import total


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
    medians = [math.log(total(run).latency.p50) for run in before]
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
