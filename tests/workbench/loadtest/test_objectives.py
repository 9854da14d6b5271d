"""Objectives of a load test: what can be asked, and what a run says to it."""

import pytest
from workbench.loadtest.records import run_of

from serve.core.errors import Invalid
from serve.workbench.loadtest.record import WRONG
from serve.workbench.loadtest.reports.objectives import (
    MEASURES,
    judge,
    parse_objective,
)


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
