"""Comparing: the same calls for everybody, beside the oracle; fronts between two parameters."""

import math
from dataclasses import replace

import pytest

from serve.capacity.service import ServiceTime
from serve.workbench.simulator.comparison import (
    FIRST_HALF,
    FIXED,
    HINDSIGHT,
    ORACLE,
    OURS,
    Scene,
    SimulationResult,
    compare,
    variants,
)
from serve.workbench.simulator.fronts import FrontPoint, cost_at, front, late_at, points
from serve.workbench.simulator.seen import SimulatedServer

SCENE = Scene(
    SimulatedServer(ServiceTime(0.04, 0.01), largest=8, limit=0.5), mean=100.0, seconds=600.0
)


def test_each_scaler_has_one_usual_parameter() -> None:
    usual = [each.scaler for each in variants() if each.is_usual and each.scaler != FIXED]
    assert sorted(usual) == ["hpa-calls", "hpa-utilisation", "kpa", "ray", "servegate"]


def fixed(
    load: str, *, scene: Scene = SCENE
) -> tuple[SimulationResult, SimulationResult, SimulationResult]:
    """This project's policy, the best fixed fleet, and the one that the first half suggests."""
    those = [each for each in variants() if each.scaler in (OURS, FIXED)]
    found = {each.parameter: each for each in compare(scene, load, 1, those)}
    return found[""], found[HINDSIGHT], found[FIRST_HALF]


def test_the_best_fixed_fleet_is_the_smallest_that_is_late_no_more_often() -> None:
    ours, best, _ = fixed("ramp")
    assert best.late <= ours.late
    smaller = replace(SCENE, most=round(best.hours * 3600 / SCENE.seconds) - 1)
    _, one_less, _ = fixed("ramp", scene=smaller)  # the most, since none is enough
    assert one_less.late > ours.late
    assert best.turns == 0


def test_a_fleet_by_the_first_half_does_not_know_what_comes_later() -> None:
    ours, best, chosen = fixed("step")
    assert chosen.hours < best.hours
    assert chosen.late > max(ours.late, 0.1)


def test_all_are_told_beside_the_oracle() -> None:
    usual = [each for each in variants() if each.is_usual]
    found = list(compare(replace(SCENE, seconds=300.0), "ramp", 1, usual))
    assert [each.scaler for each in found] == [ORACLE, *(each.scaler for each in usual)]
    assert found[0].cost == 1.0
    assert all(0 <= each.late <= 1 and each.cost > 0.3 for each in found)


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
