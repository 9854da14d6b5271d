"""What benchmarks make of their measurements: numbers of reports, and goals that are met or not."""

import math
from dataclasses import replace
from typing import Any

import pytest

from loadtests.bench import autoscaling, autoscaling_report, batching_report, fleet_report
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

# --- the real loop --------------------------------------------------------------------------------


def test_calls_come_as_often_as_each_part_says() -> None:
    quiet = autoscaling.Part("quiet", 100.0, 10.0, 10.0)
    ramp = autoscaling.Part("ramp", 100.0, 10.0, 110.0)
    times = autoscaling.starts((quiet, ramp), seed=1)
    early = sum(one < 100 for one in times)
    assert early == pytest.approx(1000, rel=0.1)
    assert len(times) - early == pytest.approx(6000, rel=0.05)
    assert list(times) == sorted(times)


def test_turns_are_counted_and_delays_last_from_the_wish_until_all_are_ready() -> None:
    assert autoscaling_report.turns([1, 2, 2, 3, 2, 1, 1, 2]) == 2
    told = ((0, 0, 1), (2, 1, 1), (5, 1, 2), (9, 1, 2), (20, 2, 2), (90, 1, 1))
    hints = [{"second": at, "ready": ready, "desired": wish} for at, ready, wish in told]
    found = list(autoscaling_report.delays({"hints": hints, "bounds": [1, 3]}))
    assert found == [("from a hint of 2 replicas until they are ready", 15)]


# --- tuned batching -------------------------------------------------------------------------------


def row(number: int, rate: float, p99: float) -> dict[str, Any]:
    return {"setup": {"max_batch_size": number}, "rate": rate, "p99": p99}


def test_predictions_are_held_against_what_was_measured_of_the_same_setup() -> None:
    measured = [row(1, 100.0, 0.01), row(2, 200.0, 0.02), row(4, 400.0, 0.02)]
    told = [row(4, 400.0, 0.03), row(2, 220.0, 0.02), row(1, 150.0, 0.01)]
    page = {"grid": {"rows": measured}, "search": {"predicted": told}, "winners": {}}
    held = batching_report.predicted(page)
    assert held.rates == ((100.0, 150.0), (200.0, 220.0), (400.0, 400.0))
    assert held.rate_error == pytest.approx(0.1)
    assert held.p99_error == pytest.approx(0.0)
    assert held.correlation == pytest.approx(1.0)


# --- the simulated fleet --------------------------------------------------------------------------


def size(replicas: int) -> dict[str, Any]:
    rates = {"fakes": 0.1, "looks": 400.0, "counts": 40.0, "scrapes": 40.0, "seconds": 20.0}
    return {
        "replicas": replicas,
        "planes": 10,
        "models": 50,
        "cold": None,
        "cold_cpu": None,
        "named": 0.5,
        "called": replicas / 100,
        "called_cpu": 1.0,
        "fakes_cpu": 9.0,
        "came": [0.2, 0.1, 0.3],
        "went": [0.1],
        "died": [0.6, 1.1],
        "moved": [0.02],
        "rest": {**rates, "control": replicas / 10_000, "api": 0},
        "snapshot": 90 * replicas,
        "compressed": 9 * replicas,
        "control_memory": 100.0 + replicas / 10,
        "worker_memory": 30.0,
    }


def part(replicas: int) -> dict[str, Any]:
    times = {"compile": 1e-6, "write": 2e-6, "read": 4e-6}
    grown = {name: each * replicas for name, each in times.items()}
    return {"replicas": replicas, **grown, "call": 5e-6, "avoid": 6e-6, "bytes": 90 * replicas}


def test_a_cell_is_worked_out_from_the_largest_fleet() -> None:
    found = {"date": "2026-01-01", "machine": "a machine", "load_seconds": 0.2, "others": 0.01}
    found |= {"sizes": [size(one) for one in (50, 200, 1000, 5000)]}
    found |= {"parts": [part(one) for one in (50, 200, 1000, 5000)]}
    rows = {
        cells[1]: cells[3]
        for line in fleet_report.section(found)
        if len(cells := [cell.strip() for cell in line.split("|")]) == 5
    }
    assert rows["workers"] == "267"
    assert rows["choosing a replica, share of a worker's time"] == "2.5 %"
    # 5 ms to compile, 10 ms to write, and 2 ms for each worker
    assert rows["time until the last worker has a change"] == "0.55 s"
    assert rows["continuous changes: time between snapshots"] == "2.2 s"
    assert rows["bandwidth for snapshots"] == "438 Mbit/s"
    assert rows["idle control plane"] == "50 % of a core"


# --- goals of the scaling policy ------------------------------------------------------------------

HERE = FrontPoint("spikes", OURS, "", True, 0.02, 0.0, 10.0, 1.5, 6.0, 5)
OTHERS = [
    replace(HERE, scaler=CALLS, parameter="70 %", late=0.04, cost=1.4),
    replace(HERE, scaler=CALLS, parameter="50 %", late=0.024, cost=1.8),
    replace(HERE, scaler=UTILISATION, parameter="70 %", late=0.03, cost=2.5),
    replace(HERE, scaler=UTILISATION, parameter="50 %", late=0.01, cost=4.0),
]


def told(*points: FrontPoint) -> dict[str, Goal]:
    return {one.wanted.split()[-1]: one for one in goals(points)}


def test_others_are_taken_at_their_best_parameter_of_the_same_cost_or_with_as_few_late() -> None:
    found = told(HERE, *OTHERS)
    assert found["cost"].found == (
        "1.80 times: hpa-calls 3.6 %; 1.65 times at 5 % higher cost: hpa-calls 3.3 %; here 2 %"
    )
    assert found["calls"].found == "2.17 times (× 3.25)"
    assert found["cost"].is_met and found["calls"].is_met


def test_what_is_missed_is_said() -> None:
    missed = told(replace(HERE, late=0.03, turns=11.0), *OTHERS)
    assert [one.is_met for one in missed.values()] == [False, False, False]


def test_calm_loads_are_judged_by_themselves() -> None:
    for late, is_met in ((0.0, True), (0.0001, False)):
        calm = replace(HERE, load="steady", late=late, cost=1.254)
        assert [one.is_met for one in goals([calm]) if "oracle" in one.wanted] == [is_met]


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
    later = replace(FLEETS[1], late=0.05)
    [found] = equals([HERE, *OTHERS, FLEETS[0], later, FLEETS[2]])
    assert math.isnan(found.hindsight)
