"""Comparing: everybody meets the same calls, and is told beside the oracle."""

from dataclasses import replace

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
