"""Hints in load reports: recorded from the gateway, drawn, told in words, and kept as JSON."""

from typing import Any

from control.live.advised import model, told
from workbench.loadtest.records import run_of
from workbench.loadtest.test_page import seen

from serve.capacity.scaling.signals import Code, Reason
from serve.workbench.loadtest.observations.hints import HintWatch
from serve.workbench.loadtest.observed import Observed
from serve.workbench.loadtest.reports.findings import findings
from serve.workbench.loadtest.reports.report import LoadRun


def page(*pools: Any) -> dict[str, Any]:
    """`/api/hints`."""
    return {"hints": [one.to_json() for one in pools]}


def recorded(*pages: dict[str, Any]) -> HintWatch:
    """Each page two seconds after the one before."""
    hints = HintWatch("digits")
    for place, each in enumerate(pages):
        hints.add(2.0 * place, each)
    return hints


def run_with(hints: HintWatch) -> LoadRun:
    """A run of eight seconds that was advised."""
    return run_of(8, 20, observed=Observed(series=hints.series, hints=hints.advice))


GROWING = (
    page(told(desired=2, ready=2, demand=1.2, reasons=(Reason(Code.STEADY, "2 are right"),))),
    page(told(desired=4, ready=2, demand=2.9)),
    page(told(desired=4, ready=2, starting=2, demand=3.1)),
    page(told(desired=4, ready=4, demand=3.0)),
)


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


def test_only_pools_that_hold_the_model_are_told() -> None:
    hints = recorded(page(told(), told("t4", models=(model("other"),))))
    assert {one.pool for one in hints.advice} == {one.of for one in hints.series} == {"default"}


def test_of_very_many_pools_only_those_that_hold_the_model_are_asked_for_again() -> None:
    others = [told(f"p{number}", models=()) for number in range(30)]
    hints = recorded(page(told("a pool"), *others))
    assert hints.paths == ("/api/hints/a%20pool",)
    hints.add(2.0, told("a pool", desired=4).to_json())
    assert [one.desired for one in hints.advice] == [3, 4]
    assert recorded(page(told(), *others[:10])).paths == ("/api/hints",)


def test_the_page_draws_each_pool_and_tells_what_was_wanted_and_why() -> None:
    shown = seen(run_with(recorded(*GROWING)))
    assert "Scaling hints" in shown.headings
    assert (
        "replicas of pool default over time: ready, 2 to 4; desired, 2 to 4; demand, 1.2 to 3.1"
        in (text.replace("\N{NO-BREAK SPACE}", " ") for text in shown.pictures)
    )
    for text in ("Pool default", "2 are right", "4 replicas, 2 more than now", "demand"):
        assert text in shown.said


def test_too_few_replicas_and_a_bound_that_holds_are_findings() -> None:
    found = findings(run_with(recorded(*GROWING)))
    assert "The scaling hint for pool default was 4 replicas while 2 were ready." in found
    reasons = (Reason(Code.MOST, "9 are needed, but the limit is 4"),)
    hints = recorded(page(told(desired=4, ready=4, reasons=reasons)))
    assert (
        "A limit kept the scaling hint for pool default below the demand: "
        "9 are needed, but the limit is 4."
    ) in findings(run_with(hints))
