"""The interval of a comparison with another checkout."""

import pytest

from loadtests.bench.against_checkout import Compared, interval


def test_equal_rounds_have_an_interval_of_no_width() -> None:
    assert interval([1.1] * 5) == pytest.approx((1.1, 1.1, 1.1))


def test_the_interval_is_students_on_logarithms() -> None:
    # logarithms -0.1, 0, 0, 0, 0.1: standard deviation 0.0707, standard error 0.0316, t = 2.776
    mean, low, high = interval([0.904837, 1.0, 1.0, 1.0, 1.105171])
    assert mean == pytest.approx(1.0, abs=1e-5)
    assert (low, high) == pytest.approx((0.916, 1.092), abs=1e-3)


def test_a_row_is_slower_only_where_its_whole_interval_is() -> None:
    assert Compared("http", 1.05, 1.031, 1.07, 10, {}).is_slower
    assert not Compared("http", 1.05, 1.029, 1.07, 10, {}).is_slower
