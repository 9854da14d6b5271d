"""What the hints of many pools cost: the line through what was measured."""

import pytest

from loadtests.bench.hint_cost import Cost, growth, measure, table


def test_a_cost_that_is_linear_has_an_exponent_of_1() -> None:
    found = growth([Cost(pools, (2e-5 * pools,)) for pools in (10, 100, 1000, 10_000)])
    assert found.per_pool == pytest.approx(2e-5)
    assert found.fixed == pytest.approx(0.0, abs=1e-9)
    assert found.exponent == pytest.approx(1.0)
    assert found.explained == pytest.approx(1.0)


def test_a_cost_that_is_quadratic_is_seen() -> None:
    found = growth([Cost(pools, (1e-8 * pools**2,)) for pools in (10, 100, 1000, 10_000)])
    assert found.exponent == pytest.approx(2.0)


def test_the_median_of_the_rounds_counts() -> None:
    assert Cost(10, (1.0, 9.0, 2.0)).median == 2.0


def test_every_size_is_measured_as_often_as_was_asked() -> None:
    costs = measure((1, 3), rounds=2)
    assert [(one.pools, len(one.seconds)) for one in costs] == [(1, 2), (3, 2)]
    assert len(list(table(costs, growth([*costs, Cost(100, (1.0,)), Cost(200, (2.0,))])))) == 6
