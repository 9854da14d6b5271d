"""Counters from reading to reading, and quantiles of buckets."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.control.live.rises import add_buckets, bucket_rises, quantile, rises


def test_a_counter_rises_by_what_is_new() -> None:
    assert rises({"a": 3.0, "gone": 1.0}, {"a": 5.0, "new": 2.0}) == {"a": 2.0, "new": 2.0}


def test_a_counter_that_fell_began_again_at_zero() -> None:
    assert rises({"a": 100.0}, {"a": 4.0}) == {"a": 4.0}


def test_all_buckets_of_a_histogram_begin_again_together() -> None:
    assert bucket_rises({0.1: 5.0, inf: 100.0}, {0.1: 8.0, inf: 20.0}) == {0.1: 8.0, inf: 20.0}


def test_histograms_are_added_bound_by_bound() -> None:
    assert add_buckets([{0.1: 1.0, inf: 2.0}, {0.1: 3.0, inf: 3.0}]) == {0.1: 4.0, inf: 5.0}
    assert add_buckets([]) == {}


@pytest.mark.parametrize("share, seconds", [(0.5, 0.01), (0.9, 0.018), (0.99, 0.0198)])
def test_calls_are_taken_to_lie_evenly_in_their_bucket(share: float, seconds: float) -> None:
    assert quantile(share, {0.01: 50, 0.02: 100, inf: 100}) == pytest.approx(seconds)


def test_beyond_the_last_bound_a_quantile_is_that_bound() -> None:
    assert quantile(0.99, {0.01: 10, 60.0: 10, inf: 1000}) == 60.0


@pytest.mark.parametrize("buckets", [{}, {0.01: 0.0, inf: 0.0}])
def test_without_calls_there_is_no_quantile(buckets: dict[float, float]) -> None:
    assert quantile(0.5, buckets) is None


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_its_call(counts: list[int], share: float) -> None:
    bounds = [0.1, 0.2, 0.4, 0.8]
    upto = [float(sum(counts[: at + 1])) for at in range(4)]
    found = quantile(share, dict(zip(bounds, upto, strict=True)))
    if not upto[-1]:
        assert found is None
        return
    at = next(at for at in range(4) if upto[at] >= share * upto[-1])
    assert found is not None
    assert (bounds[at - 1] if at else 0.0) <= found <= bounds[at] + 1e-12
