"""Where the time of a call went, told only as far as it is known."""

from typing import Any

import pytest

from serve.control.tries.records import Latency
from serve.control.tries.sides import counted, latency


def stats(calls: int, failed: int = 0) -> dict[str, Any]:
    """Counters after so many calls, each with 1 ms in the queue and 2, 3 and 4 ms of compute."""
    parts = {"queue": 1, "compute_input": 2, "compute_infer": 3, "compute_output": 4, "success": 11}
    found = {name: {"count": calls, "ns": calls * ms * 1_000_000} for name, ms in parts.items()}
    return {"inference_stats": {**found, "fail": {"count": failed, "ns": 0}}}


def test_one_call_that_was_counted_alone_is_exact() -> None:
    found = latency(0.015, stats(7), stats(8))
    assert (found.exact, found.calls, found.round_trip) == (True, 1, 0.015)
    assert found.gateway_and_network == pytest.approx(0.004)
    parts = (found.queue, found.compute_input, found.compute_infer, found.compute_output)
    assert parts == pytest.approx((0.001, 0.002, 0.003, 0.004))


def test_with_other_calls_it_is_an_average_and_the_rest_is_not_told() -> None:
    found = latency(0.015, stats(7), stats(10))
    assert (found.exact, found.calls, found.gateway_and_network) == (False, 3, None)
    assert found.queue == pytest.approx(0.001)
    # so it is with one that failed meanwhile
    assert not latency(0.015, stats(7, failed=1), stats(8, failed=2)).exact


def test_what_was_not_counted_is_not_known() -> None:
    one, three, nine = stats(1), stats(3), stats(9)
    for before, after in ((None, None), (one, None), (None, one), (three, three), (nine, one)):
        assert latency(0.015, before, after) == Latency(round_trip=0.015)
        assert counted(before, after) == 0


def test_a_replica_that_started_anew_or_has_statistics_of_another_shape_tells_nothing() -> None:
    after = stats(8)
    after["inference_stats"]["queue"]["ns"] = 0
    assert latency(0.015, stats(7), after) == Latency(round_trip=0.015)
    for page in ({}, {"inference_stats": None}, {"inference_stats": {"queue": 3}}):
        assert latency(0.015, page, page) == Latency(round_trip=0.015)
