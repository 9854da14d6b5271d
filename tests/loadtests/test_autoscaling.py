"""The real loop's bench: its arrivals, and what its report counts."""

from typing import Any

import pytest

from loadtests.bench.autoscaling import Part, changes, starts
from loadtests.bench.autoscaling_report import delays, pictures, turns


def hint(second: float, ready: int, desired: int, demand: float | None = 1.0) -> dict[str, Any]:
    models = [{"name": "digits", "capacity": 60.0}]
    told = {"ready": ready, "desired": desired, "starting": desired - ready, "demand": demand}
    return {"second": second, "models": models, **told}


def page(*hints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "hints": hints,
        "bounds": [1, 3],
        "calls": 100,
        "failed": 0,
        "errors": {},
        "latency": {"p50": 0.05, "p99": 0.2},
        "load": [{"second": 0, "intended": 15.0, "right": 15.0, "failed": 0.0}],
        **more,
    }


def test_calls_come_as_often_as_each_part_says() -> None:
    times = starts((Part("quiet", 100.0, 10.0, 10.0), Part("ramp", 100.0, 10.0, 110.0)), seed=1)
    quiet = sum(one < 100 for one in times)
    assert quiet == pytest.approx(1000, rel=0.1)
    assert len(times) - quiet == pytest.approx(6000, rel=0.05)
    assert list(times) == sorted(times)


def test_hints_that_say_what_the_one_before_said_are_left_out_but_for_the_last() -> None:
    told = [hint(0, 1, 1), hint(1, 1, 1), hint(2, 1, 2), hint(3, 1, 2), hint(4, 1, 2)]
    assert [one["second"] for one in changes(told)] == [0, 2, 4]


def test_a_rise_after_a_fall_is_a_change_of_direction() -> None:
    assert turns([1, 2, 2, 3, 2, 1, 1, 2]) == 2


def test_a_delay_is_from_the_wish_until_all_are_ready() -> None:
    told = page(
        hint(0, 0, 1), hint(2, 1, 1), hint(5, 1, 2), hint(9, 1, 2), hint(20, 2, 2), hint(90, 1, 1)
    )
    assert list(delays(told)) == [("from a hint of 2 replicas until they are ready", 15)]


def test_both_pictures_are_drawn_where_a_demand_is_not_known() -> None:
    drawn = pictures(page(hint(0, 1, 1, None), hint(10, 2, 2, 1.5)))
    assert sorted(drawn) == ["autoscaling-load.svg", "autoscaling-loop.svg"]
    assert all(one.startswith("<svg") for one in drawn.values())
