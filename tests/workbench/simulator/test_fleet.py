"""The fleet: what a replica bears, what replicas cost, and who is called when."""

import numpy as np
import pytest

from serve.capacity.scaling.signals import Bounds
from serve.capacity.service import ServiceTime
from serve.workbench.simulator.baselines import HpaCalls, Kpa, Ray
from serve.workbench.simulator.comparison import Oracle, Ours
from serve.workbench.simulator.fleet import simulate
from serve.workbench.simulator.loads import arrivals
from serve.workbench.simulator.seen import FleetCourse, SeenTick, SimulatedScaler, SimulatedServer

SERVER = SimulatedServer(ServiceTime(0.04, 0.01), largest=8, limit=0.5, cold_start=60.0)
BEARS = 8 / (0.04 + 8 * 0.01)  # calls per second


class Fixed:
    """Always the same number."""

    def __init__(self, *wishes: int) -> None:
        self.wishes = list(wishes)
        self.seen: list[SeenTick] = []

    def decide(self, seen: SeenTick) -> int:
        self.seen.append(seen)
        return self.wishes.pop(0) if len(self.wishes) > 1 else self.wishes[0]


def run(
    rate: float, scaler: SimulatedScaler, *, seconds: float = 600.0, first: int = 1
) -> FleetCourse:
    times = arrivals("steady", rate, seconds, seed=1)
    return simulate(times, SERVER, scaler, first=first, seconds=seconds)


def test_a_replica_bears_what_full_batches_give_and_no_more() -> None:
    assert run(0.8 * BEARS, Fixed(1)).share_late == 0
    too_many = run(1.5 * BEARS, Fixed(1))
    assert too_many.share_late == pytest.approx(1 / 3, abs=0.05)
    assert too_many.refused > 0


def test_every_call_is_answered_or_refused() -> None:
    scaler = Fixed(2)
    course = run(60.0, scaler, first=2)
    answered = sum(seen.answered for seen in scaler.seen)
    assert course.calls - answered - course.refused <= 16  # under way at the end
    assert sum(seen.calls for seen in scaler.seen) == course.calls


def test_replicas_cost_from_the_wish_on() -> None:
    assert run(1.0, Fixed(1)).cost == pytest.approx(600.0)
    assert run(1.0, Fixed(3)).cost == pytest.approx(600 + 2 * 599, abs=1)


def test_a_replica_is_called_once_it_has_started() -> None:
    scaler = Fixed(2)
    run(1.0, scaler)
    ready = [seen.ready for seen in scaler.seen]
    assert ready[58] == 1 and ready[62] == 2
    assert [seen.starting for seen in scaler.seen][1:50] == [1] * 49


def test_one_that_goes_works_off_what_it_has() -> None:
    times = np.full(16, 9.99)
    scaler = Fixed(*[2] * 9, 1)
    course = simulate(times, SERVER, scaler, first=2, seconds=20.0)
    assert course.late == 0 and course.refused == 0
    assert course.cost == pytest.approx(20 + 10.1, abs=0.1)


def test_calls_inside_are_counted_over_the_whole_tick() -> None:
    scaler = Fixed(1)
    simulate(np.array([0.25, 5.0]), SERVER, scaler, first=1, seconds=8.0)
    inside = [seen.inside for seen in scaler.seen]
    assert inside[0] == pytest.approx(0.05)
    assert sum(inside) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "scaler",
    [
        Ours(SERVER, Bounds(1, 20)),
        HpaCalls(0.7 * BEARS, least=1, most=20),
        Kpa(0.7 * 8, least=1, most=20),
        Ray(4.0, least=1, most=20),
    ],
    ids=["ours", "hpa", "kpa", "ray"],
)
def test_every_scaler_comes_to_bear_a_steady_load(scaler: SimulatedScaler) -> None:
    course = run(4.0 * BEARS, scaler, seconds=900.0)
    assert 4 < course.ready[-1] <= 20
    late = run(4.0 * BEARS, Fixed(course.ready[-1]), seconds=200.0, first=course.ready[-1])
    assert late.share_late < 0.01


def test_the_oracle_has_replicas_when_they_are_needed() -> None:
    times = arrivals("step", 2.0 * BEARS, 1200.0, seed=5)
    oracle = Oracle.knowing(times, 1200.0, SERVER, 0.85 * BEARS)
    course = simulate(times, SERVER, oracle, first=2, seconds=1200.0)
    assert course.share_late < 0.002
