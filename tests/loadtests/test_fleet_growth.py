"""To which power of its size a fleet's costs grow."""

import pytest

from loadtests.bench.fleet_growth import growth

SIZES = (50, 100, 200, 500, 1000, 5000)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_a_power_is_found(power: float) -> None:
    found = growth([(size, 3.0 * size**power) for size in SIZES])
    assert found is not None
    assert found.exponent == pytest.approx(power, abs=1e-9)
    assert found.explained == pytest.approx(1.0)


def test_small_fleets_whose_costs_do_not_grow_yet_do_not_count() -> None:
    found = growth([(size, max(1000.0, float(size))) for size in SIZES], least=1000)
    assert found is None
    larger = growth([(size, max(200.0, float(size))) for size in SIZES], least=200)
    assert larger is not None and larger.exponent == pytest.approx(1.0)


def test_what_was_not_measured_has_no_exponent() -> None:
    assert growth([(200, 1.0), (5000, 2.0)]) is None
    assert growth([(200, 0.0), (500, 0.0), (1000, 0.0)]) is None
