"""The goals of the scaling policy: what is met, what is missed, and what cannot be compared."""

import math
from dataclasses import replace

import pytest

from loadtests.bench.scaling_goals import Goal, equals, goals
from serve.workbench.simulator.comparison import (
    CALLS,
    FIRST_HALF,
    FIXED,
    HINDSIGHT,
    ORACLE,
    OURS,
    UTILISATION,
)
from serve.workbench.simulator.fronts import FrontPoint

HERE = FrontPoint("spikes", OURS, "", True, 0.02, 0.0, 10.0, 1.5, 6.0, 5)
OTHERS = [
    replace(HERE, scaler=CALLS, parameter="70 %", late=0.04, cost=1.4),
    replace(HERE, scaler=CALLS, parameter="50 %", late=0.024, cost=1.8),
    replace(HERE, scaler=UTILISATION, parameter="70 %", late=0.03, cost=2.5),
    replace(HERE, scaler=UTILISATION, parameter="50 %", late=0.01, cost=4.0),
]


def told(*points: FrontPoint) -> dict[str, Goal]:
    return {one.wanted.split()[-1]: one for one in goals(points)}


def test_others_are_taken_at_their_best_parameter_of_the_same_cost() -> None:
    found = told(HERE, *OTHERS)["cost"]
    assert found.found == (
        "1.80 times: hpa-calls 3.6 %; 1.65 times at 5 % higher cost: hpa-calls 3.3 %; here 2 %"
    )
    assert found.is_met


def test_utilisation_is_taken_where_it_has_as_few_late_calls() -> None:
    found = told(HERE, *OTHERS)["calls"]
    assert found.found == "2.17 times (× 3.25)"
    assert found.is_met


def test_what_is_missed_is_said() -> None:
    missed = told(replace(HERE, late=0.03, turns=11.0), *OTHERS)
    assert [one.is_met for one in missed.values()] == [False, False, False]


def test_calm_loads_are_judged_by_themselves() -> None:
    calm = replace(HERE, load="steady", late=0.0, cost=1.254)
    assert [one.is_met for one in goals([calm]) if "oracle" in one.wanted] == [True]
    late = replace(calm, late=0.0001)
    assert [one.is_met for one in goals([late]) if "oracle" in one.wanted] == [False]


FLEETS = [
    replace(HERE, scaler=ORACLE, late=0.28, cost=1.0),
    replace(HERE, scaler=FIXED, parameter=HINDSIGHT, late=0.015, cost=1.2),
    replace(HERE, scaler=FIXED, parameter=FIRST_HALF, late=0.1, cost=0.9),
]


def test_others_are_compared_where_they_are_late_no_more_often() -> None:
    [found] = equals([HERE, *OTHERS, *FLEETS])
    assert found.hindsight == pytest.approx(0.8)
    assert math.isnan(found.calls)  # none of its parameters has so few
    assert found.utilisation == pytest.approx(3.25 / 1.5)
    assert (found.chosen_late, found.oracle_late) == (0.1, 0.28)


def test_a_fixed_fleet_of_the_most_that_is_late_more_often_is_no_answer() -> None:
    later = replace(FLEETS[1], late=0.05)
    [found] = equals([HERE, *OTHERS, FLEETS[0], later, FLEETS[2]])
    assert math.isnan(found.hindsight)
