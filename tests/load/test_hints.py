"""Hints in load reports: recorded from the gateway, drawn, told in words, and kept as JSON."""

from dataclasses import replace
from math import nan
from typing import Any

import pytest
from control.live.advised import model, told
from load.records import run_of
from load.test_page import HOSTILE, bare_run, seen

from serve.capacity.scaling.signals import Code, Reason
from serve.load.observed import Observed
from serve.load.reporting.drawing_replicas import replicas_svg
from serve.load.reporting.findings import findings
from serve.load.reporting.report import Run
from serve.load.watching.hints import Hints


def page(*pools: Any) -> dict[str, Any]:
    """`/api/hints`."""
    return {"hints": [one.to_json() for one in pools]}


def recorded(*pages: dict[str, Any], of: str = "digits") -> Hints:
    """Each page two seconds after the one before."""
    hints = Hints(of)
    for place, each in enumerate(pages):
        hints.add(2.0 * place, each)
    return hints


def run_with(hints: Hints) -> Run:
    """A run of eight seconds that was advised."""
    return run_of(8, 20, observed=Observed(series=hints.series, hints=hints.advice))


GROWING = (
    page(told(desired=2, ready=2, demand=1.2, reasons=(Reason(Code.STEADY, "2 are right"),))),
    page(told(desired=4, ready=2, demand=2.9)),
    page(told(desired=4, ready=2, starting=2, demand=3.1)),
    page(told(desired=4, ready=4, demand=3.0)),
)


# --- recorded ------------------------------------------------------------------------------------


def test_numbers_are_recorded_over_time_and_words_where_they_change() -> None:
    hints = recorded(*GROWING)
    assert {(one.of, one.name): one.values for one in hints.series} == {
        ("default", "ready"): (2, 2, 2, 4),
        ("default", "wanted"): (2, 4, 4, 4),
        ("default", "demand"): (1.2, 2.9, 3.1, 3.0),
    }
    assert [(one.at, one.desired, one.reasons[0][0]) for one in hints.advice] == [
        (0.0, 2, "steady"),
        (2.0, 4, "demand"),
    ]


def test_a_demand_that_nobody_knows_is_a_hole() -> None:
    hints = recorded(page(told()), page(told(demand=nan, confidence="low")))
    (demand,) = [one for one in hints.series if one.name == "demand"]
    assert demand.values == (2.31, None)
    assert [one.is_held for one in hints.advice] == [False, True]


def test_only_pools_that_hold_the_model_are_told() -> None:
    other = told("t4", models=(model("other"),))
    assert {one.pool for one in recorded(page(told(), other)).advice} == {"default"}
    assert {one.of for one in recorded(page(told(), other)).series} == {"default"}


def test_all_pools_are_told_while_none_is_known_to_hold_the_model() -> None:
    both = page(told(models=()), told("t4", models=()))
    assert {one.pool for one in recorded(both).advice} == {"default", "t4"}


def test_of_very_many_pools_only_those_that_hold_the_model_are_asked_for_again() -> None:
    others = [told(f"p{number}", models=()) for number in range(30)]
    hints = recorded(page(told("a pool"), *others))
    assert hints.paths == ("/api/hints/a%20pool",)
    hints.add(2.0, told("a pool", desired=4).to_json())
    assert [one.desired for one in hints.advice] == [3, 4]
    assert recorded(page(told(), *others[:10])).paths == ("/api/hints",)


def test_what_was_before_the_run_is_forgotten() -> None:
    hints = recorded(page(told()))
    hints.forget()
    hints.add(0.5, page(told()))
    assert [(one.at, one.pool) for one in hints.advice] == [(0.5, "default")]
    assert {one.seconds for one in hints.series} == {(0.5,)}


@pytest.mark.parametrize("wrong", [{}, {"hints": [{"pool": "default"}]}, {"hints": 3}])
def test_another_shape_is_an_error_that_the_observer_tells(wrong: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        recorded(wrong)


def test_hints_outlive_being_written_down() -> None:
    observed = run_with(recorded(*GROWING)).observed
    assert Observed.from_json(observed.to_json()) == observed


def test_reports_of_before_hints_can_be_read() -> None:
    old = {key: value for key, value in Observed().to_json().items() if key != "hints"}
    assert Observed.from_json(old).hints == ()


# --- told ----------------------------------------------------------------------------------------


def test_the_page_draws_each_pool_and_tells_what_was_wanted_and_why() -> None:
    shown = seen(run_with(recorded(*GROWING)))
    assert "Autoscaling hints" in shown.headings
    assert (
        "replicas of pool default over time: ready, 2 to 4; wanted, 2 to 4; demand, 1.2 to 3.1"
        in (text.replace("\N{NO-BREAK SPACE}", " ") for text in shown.pictures)
    )
    for text in ("Pool default", "2 are right", "4 replicas, 2 more than there are", "demand"):
        assert text in shown.said


def test_readings_of_pools_are_not_drawn_twice() -> None:
    assert "Readings over time" not in seen(run_with(recorded(*GROWING))).headings


def test_a_run_without_hints_has_no_such_part() -> None:
    assert "Autoscaling hints" not in seen(bare_run()).headings


def test_a_number_that_is_only_held_says_so() -> None:
    shown = seen(run_with(recorded(page(told(confidence="low", demand=nan)))))
    assert "only held" in shown.said


def test_texts_from_outside_are_escaped() -> None:
    reasons = (Reason(Code.DEMAND, HOSTILE),)
    hints = recorded(page(told(HOSTILE, reasons=reasons)))
    shown = seen(run_with(hints))
    assert "script" not in shown.tags
    assert HOSTILE in shown.said


def test_very_many_changes_are_cut_in_the_table() -> None:
    flapping = [page(told(desired=2 + place % 2)) for place in range(45)]
    hints = recorded(*flapping)
    advice = tuple(replace(one, at=one.at / 20) for one in hints.advice)
    shown = seen(run_of(8, 20, observed=Observed(hints=advice)))
    assert "and 5 more, in report.json" in shown.said


def test_nothing_is_drawn_of_numbers_that_nobody_knows() -> None:
    unknown = [(0.0, nan)]
    assert replicas_svg(unknown, unknown, unknown, 8.0, (), spoken="") == ""


# --- found ---------------------------------------------------------------------------------------


def test_too_few_replicas_are_a_finding() -> None:
    found = findings(run_with(recorded(*GROWING)))
    assert "Hints wanted 4 replicas of pool default while 2 were ready." in found


def test_enough_replicas_are_none() -> None:
    enough = page(told(desired=2, ready=2, demand=1.2))
    assert not [one for one in findings(run_with(recorded(enough))) if "replicas" in one]


def test_a_bound_that_holds_is_a_finding_with_its_numbers() -> None:
    reasons = (Reason(Code.MOST, "9 would be right, and 4 are allowed"),)
    hints = recorded(page(told(desired=4, ready=4, reasons=reasons)))
    assert (
        "Pool default may not have as many replicas as hints would want: "
        "9 would be right, and 4 are allowed."
    ) in findings(run_with(hints))
