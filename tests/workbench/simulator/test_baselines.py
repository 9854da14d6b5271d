"""What people use today: each rule as its source has it, one situation after the other."""

from dataclasses import replace

from serve.workbench.simulator.baselines import (
    HpaCalls,
    HpaUtilisation,
    Kpa,
    Ray,
    TickWindow,
    external,
    of_pods,
)
from serve.workbench.simulator.seen import SeenTick, SimulatedScaler

QUIET = SeenTick(1.0, 4, 0, 0, 0, 0, 0, 0, 0.0, 0.0, {}, 0.0, 0.0)


def wishes(scaler: SimulatedScaler, seconds: int, begin: int = 1, **told: float) -> list[int]:
    """What it wants tick by tick, while the same is told."""
    seen = [replace(QUIET, at=float(at), **told) for at in range(begin, begin + seconds)]  # type: ignore[arg-type]
    return [scaler.decide(one) for one in seen]


def test_hpa_does_nothing_within_its_tolerance() -> None:
    assert external(10.9, 1.0, 10, 0.1) == 10
    assert external(11.2, 1.0, 10, 0.1) == 12
    assert external(8.5, 1.0, 10, 0.1) == 9
    assert external(11.0, 1.0, 10, 0.0) == 11


def test_hpa_counts_what_starts_as_idle_on_the_way_up_and_leaves_it_out_on_the_way_down() -> None:
    wished = {(2.0, 4, 0): 8, (2.0, 4, 2): 8, (1.5, 4, 2): 6, (1.5, 4, 4): 8}
    wished |= {(0.5, 4, 2): 2, (0.95, 4, 2): 6, (3.0, 0, 2): 2}
    found = {
        (busy, ready, starting): of_pods(busy, ready=ready, starting=starting, tolerance=0.1)
        for busy, ready, starting in wished
    }
    assert found == wished


def test_hpa_doubles_or_adds_four_and_decides_every_fifteen_seconds() -> None:
    told = wishes(HpaCalls(10.0, least=1, most=50), 31, calls=1000, ready=3)
    assert told[:15] == [7] * 15
    assert wishes(HpaCalls(10.0, least=1, most=50), 1, calls=1000, ready=10) == [20]


def test_hpa_goes_down_to_the_most_of_five_minutes() -> None:
    scaler = HpaUtilisation(0.5, least=1, most=50)
    assert set(wishes(scaler, 60, busy=0.5)) == {4}
    told = wishes(scaler, 400, begin=61, busy=0.1)
    assert told[200] == 4
    assert told[-1] == 1


def test_kpa_panics_at_twice_its_target_and_holds_for_a_minute() -> None:
    scaler = Kpa(5.0, least=1, most=50)
    assert set(wishes(scaler, 120, inside=20.0)) == {4}
    panic = wishes(scaler, 10, begin=121, inside=60.0)
    assert panic[-1] == 12
    after = wishes(scaler, 58, begin=131, inside=5.0)
    assert set(after) == {12}
    assert wishes(scaler, 40, begin=189, inside=5.0)[-1] == 2


def test_kpa_holds_what_is_there_for_its_first_minute_and_goes_down_to_a_half_at_most() -> None:
    told = wishes(Kpa(5.0, least=1, most=50), 70, inside=5.0)
    assert set(told[:60]) == {4}
    assert told[-1] == 2
    assert wishes(Kpa(5.0, least=1, most=50), 200, inside=0.0)[-1] == 2


def test_ray_goes_up_after_half_a_minute_and_down_after_ten() -> None:
    scaler = Ray(2.0, least=1, most=50)
    up = wishes(scaler, 40, inside=16.0)
    assert up[:30] == [4] * 30
    assert up[30] == 8
    down = wishes(Ray(2.0, least=1, most=50), 700, inside=2.0)
    assert set(down[:600]) == {4}
    assert down[600] == 1


def test_bounds_hold() -> None:
    for scaler in (HpaCalls(1.0, least=2, most=3), Ray(1.0, least=2, most=3)):
        assert wishes(scaler, 100, calls=1000, inside=1000.0)[-1] in (3, 4)


def test_a_window_holds_the_last_seconds() -> None:
    window = TickWindow(3.0)
    assert (window.total, window.mean) == (0, 0.0)
    for at in range(1, 7):
        window.add(float(at), 10.0 * at)
    assert list(window.values) == [40.0, 50.0, 60.0]
    assert (window.total, window.mean) == (150.0, 50.0)
