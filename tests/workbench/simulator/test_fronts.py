"""Fronts: what a scaler reaches between two of its parameters, and beyond them."""

import math
from dataclasses import replace

import pytest

from serve.workbench.simulator.comparison import SimulationResult
from serve.workbench.simulator.fronts import FrontPoint, cost_at, front, late_at, points

ONE = FrontPoint("steady", "kpa", "70 %", True, 0.1, 0.0, 10.0, 1.0, 0.0, 5)
FRONT = [ONE, replace(ONE, parameter="50 %", late=0.02, cost=2.0)]
RESULT = SimulationResult("steady", 1, "kpa", "70 %", True, 0.1, 10.0, 1.0, 4.0)


def test_between_two_parameters_is_a_line() -> None:
    assert late_at(FRONT, 1.5) == pytest.approx(0.06)
    assert cost_at(FRONT, 0.06) == pytest.approx(1.5)


def test_a_parameter_that_is_worse_in_both_is_no_part_of_the_front() -> None:
    worse = replace(ONE, parameter="60 %", late=0.2, cost=1.5)
    assert front([worse, *FRONT]) == tuple(FRONT)
    assert late_at([worse, *FRONT], 1.75) == late_at(FRONT, 1.75)


def test_beyond_the_last_nothing_is_guessed() -> None:
    assert math.isnan(late_at(FRONT, 0.9))
    assert late_at(FRONT, 3.0) == 0.02
    assert math.isnan(cost_at(FRONT, 0.01))
    assert cost_at(FRONT, 0.5) == 1.0


def test_a_point_is_the_mean_over_seeds() -> None:
    other = replace(RESULT, seed=2, late=0.3, hours=30.0, cost=1.5, turns=0.0)
    (found,) = points([RESULT, other])
    assert found.late == pytest.approx(0.2)
    assert found.late_error == pytest.approx(0.1)
    assert found.cost == pytest.approx(40 / 30)
    assert (found.turns, found.seeds) == (2.0, 2)
