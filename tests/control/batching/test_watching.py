"""Whether callers are served as well after a change: by what the gateway has counted."""

from math import inf

import pytest

from serve.control.batching.regressions import CallWindow, judged, window
from serve.control.live.gateway_metrics import GatewayReading
from serve.core.objectives import Objective

P99 = Objective.parse("p99<50ms")
GOOD = CallWindow(calls=1000, slow=5, errors=0)


def reading(calls: float, fast: float, errors: float = 0.0) -> GatewayReading:
    """So many calls of `m` since the start, of which some took up to 50 ms."""
    where = ("m", "1", "http")
    buckets = {"m": {0.01: fast / 2, 0.05: fast, 1.0: calls, inf: calls}}
    failed = {(where, "no_replica"): errors}
    return GatewayReading({where: calls}, failed, {}, buckets, {}, None, {}, {}, {}, {})


def test_a_window_holds_what_rose_between_two_readings() -> None:
    found = window("m", P99, reading(100, 90, 1), reading(300, 250, 4))
    assert found == CallWindow(calls=200, slow=40, errors=3)


def test_within_a_bucket_calls_are_taken_to_lie_evenly() -> None:
    between = Objective.parse("p90<525ms")
    assert window("m", between, reading(0, 0), reading(100, 60)).slow == pytest.approx(20)


def test_a_change_stays_while_the_objective_is_met() -> None:
    verdict = judged(GOOD, CallWindow(1000, 8, 0), P99, ended=True)
    assert (verdict.why, verdict.told) == (
        "",
        "p99<50ms is met: 8 of 1000 calls took longer",
    )


@pytest.mark.parametrize(("slow", "at_once", "at_the_end"), [(15, 0, 0), (18, 0, 1), (30, 1, 1)])
def test_the_clearer_the_objective_is_missed_the_sooner_it_is_known(
    slow: float, at_once: bool, at_the_end: bool
) -> None:
    after = CallWindow(1000, slow, 0)
    assert bool(judged(GOOD, after, P99).why) == at_once
    assert bool(judged(GOOD, after, P99, ended=True).why) == at_the_end


def test_an_objective_that_was_missed_before_says_nothing_of_a_change() -> None:
    verdict = judged(CallWindow(1000, 100, 0), CallWindow(1000, 900, 0), P99, ended=True)
    assert (verdict.why, verdict.told) == ("", "p99<50ms was not met before the change either")


@pytest.mark.parametrize(("before", "after"), [(49, 1000), (1000, 49), (0, 0)])
def test_few_calls_are_no_reason_for_anything(before: float, after: float) -> None:
    verdict = judged(CallWindow(before), CallWindow(after, after, after), P99, ended=True)
    assert not verdict.why and "too few calls" in verdict.told


def test_errors_that_were_not_there_before_take_a_change_back_without_an_objective() -> None:
    assert "20 of 1000 calls failed" in judged(GOOD, CallWindow(1000, 0, 20), None).why
    assert not judged(CallWindow(1000, 0, 18), CallWindow(1000, 0, 20), None).why
