"""The search for a setup, on servers that are simulated and are not quite what is predicted."""

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from capacity.simulated_server import SimulatedServer

from serve.capacity.knowledge import SHARES, SeenTrial, believed
from serve.capacity.measurements import Ask, Calibration, Measured, OpenLoopTrial, Pressure
from serve.capacity.search import Best, Halving, candidates
from serve.capacity.search_state import FORMAT
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.core.objectives import Objective

WITHIN_100_MS = Objective.parse("p99<100ms")
LEAST = 16  # measurements that a search may take, however small its grid
TRIALS_OF_A_GRID = 10  # a search for the highest rate of one setup takes 10 to 16


def server() -> SimulatedServer:
    service = ServiceTime(0.004, 0.001, 0.1, {1: 1.0, 2: 1.5})
    return SimulatedServer(service, 0.0003, WITHIN_100_MS, seed=1)


def search(grid: tuple[BatchSetup, ...], most: int | None = None) -> Halving:
    return Halving(grid, WITHIN_100_MS, most=most)


SMALL = candidates(8, instances=2, objective=WITHIN_100_MS, delays=[0.0, 0.005])


def run(
    halving: Halving,
    measured: SimulatedServer,
    steps: int = 1000,
    change: Callable[[Ask, Measured], Measured | str] = lambda ask, told: told,
) -> Halving:
    """Measure what is asked for; `change` makes another answer of it, or a failure in words."""
    while steps and (ask := halving.next()) is not None:
        told = change(ask, measured.answer(ask))
        if isinstance(told, str):
            halving.failed(told)
        else:
            halving.told(told)
        steps -= 1
    return halving


@functools.cache
def searched() -> Halving:
    """A search that was never interrupted, and that nobody goes on with."""
    return run(search(SMALL), server())


def best_of(halving: Halving) -> Best:
    found = halving.best()
    assert found is not None
    return found


def random_server(seed: int) -> tuple[SimulatedServer, tuple[BatchSetup, ...]]:
    """Services from half a millisecond to ten, objectives from four to thirty executions."""
    random = np.random.default_rng(seed)
    fixed = 10 ** random.uniform(-3.3, -2)
    per_row = fixed * 10 ** random.uniform(-1.7, 0.3)
    service = ServiceTime(
        fixed, per_row, random.uniform(0.02, 0.3), {1: 1.0, 2: random.uniform(1.0, 2.2)}
    )
    limit = (fixed + per_row) * 10 ** random.uniform(0.6, 1.5)
    objective = Objective.parse(f"p99<{limit * 1e3:.1f}ms")
    measured = SimulatedServer(service, 0.0003, objective, noise=0.02, faults=0.01, seed=seed)
    largest = int(random.choice([8, 16, 32]))
    delays = [0.0, limit / 20]
    return measured, candidates(largest, instances=2, objective=objective, delays=delays)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 6))]
)
def test_it_finds_a_setup_close_to_the_best_with_few_measurements(seed: int) -> None:
    measured, grid = random_server(seed)
    halving = run(Halving(grid, measured.objective), measured)
    best = best_of(halving)
    assert measured.limit(best.setup) >= 0.95 * max(measured.limit(each) for each in grid)
    a_tenth = len(grid) * TRIALS_OF_A_GRID / 10
    assert halving.measurements <= max(LEAST, a_tenth)
    assert best.measurements == halving.measurements


def test_what_it_found_passed_twice() -> None:
    halving = searched()
    best = best_of(halving)
    assert best.is_confirmed
    rates = [ask.rate for ask, _ in halving.history() if isinstance(ask, OpenLoopTrial)]
    assert rates.count(best.rate) >= 2
    assert best.rate <= 1.06 * server().limit(best.setup)


def test_it_calibrates_before_it_tries_anything() -> None:
    halving = searched()
    asks = [ask for ask, _ in halving.history()]
    kinds = [type(ask) for ask in asks]
    first = kinds.index(OpenLoopTrial)
    assert kinds[:first] == [*3 * [Calibration], Pressure, Calibration, Pressure]
    assert set(kinds[first:]) == {OpenLoopTrial}
    loops = [(one.setup.instances, one.callers) for one in asks if isinstance(one, Calibration)]
    assert loops == [(1, 1), (1, 4), (1, 16), (2, 32)]
    assert halving.service is not None
    assert halving.service.fixed == pytest.approx(0.004, rel=0.15)
    assert halving.service.slowed(2) == pytest.approx(1.5, rel=0.15)


def test_trials_of_one_setup_follow_each_other_so_that_it_is_loaded_once() -> None:
    halving = searched()
    trials = [ask for ask, _ in halving.history() if isinstance(ask, OpenLoopTrial)]
    for step in ("rung 2", "rung 3"):
        setups = [each.setup for each in trials if each.step == step]
        changes = sum(one != other for one, other in itertools.pairwise(setups))
        assert changes == len(set(setups)) - 1


@pytest.mark.parametrize("most", [10, 17])
def test_it_never_asks_for_more_than_it_may(most: int) -> None:
    halving = run(search(SMALL, most), server())
    assert halving.measurements <= most
    assert halving.best() is not None
    assert halving.next() is None


@pytest.mark.parametrize("steps", [0, 4, 15])
def test_a_state_goes_on_where_it_left_off(steps: int) -> None:
    expected, parted = searched(), server()
    before = run(search(SMALL), parted, steps)
    after = Halving.from_json(json.loads(json.dumps(before.to_json())))
    assert after.to_json() == before.to_json()
    assert after.next() == before.next() is before.next()  # until it is answered
    run(after, parted)
    assert after.history() == expected.history()
    assert after.best() == expected.best()


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="the state of the search is damaged"):
        Halving.from_json({"format": FORMAT, "grid": 7})
    with pytest.raises(Invalid) as refused:
        Halving.from_json({"format": FORMAT - 1})
    assert refused.value.why == "the state has the format of another version"


def test_a_setup_that_does_not_load_is_out_and_never_asked_for_again() -> None:
    def change(ask: Ask, told: Measured) -> Measured | str:
        is_large = isinstance(ask, OpenLoopTrial) and ask.setup.instances == 2
        return "no memory" if is_large else told

    halving = run(search(SMALL), server(), change=change)
    assert best_of(halving).setup.instances == 1
    failed = [ask.setup for ask, told in halving.history() if told == "no memory"]
    assert len(failed) == len(set(failed)) > 0
    assert {each.why_out for each in halving.standings if each.setup in failed} == {"no memory"}


def test_errors_late_answers_and_too_low_a_rate_are_failures() -> None:
    def measured(latency: float = 0.01, **more: int) -> Measured:
        return Measured(5.0, 100.0, latency, 0.01, latency, **more)

    assert measured().passes(100, WITHIN_100_MS)
    assert not measured(errors=1).passes(100, WITHIN_100_MS)
    assert not measured().passes(130, WITHIN_100_MS)
    assert not measured(latency=0.11).passes(100, WITHIN_100_MS)
    # a Poisson process of 20 calls a second brings 80 ± 9 in four seconds
    assert Measured(4.0, 16.0, 0.01, 0.01, 0.01).passes(20, WITHIN_100_MS)
    assert not Measured(400.0, 16.0, 0.01, 0.01, 0.01).passes(20, WITHIN_100_MS)


def test_an_objective_that_nothing_meets_ends_the_search_after_calibration() -> None:
    measured = server()
    halving = Halving(SMALL[:4], Objective.parse("p99<2ms"))
    run(halving, measured)
    assert halving.best() is None
    assert not any(isinstance(ask, OpenLoopTrial) for ask in measured.asked)
    assert "a single call takes" in halving.standings[0].why_out


def test_where_every_trial_misses_each_goes_further_down_until_one_passes() -> None:
    measured = server()

    def change(ask: Ask, told: Measured) -> Measured:
        misses = isinstance(ask, OpenLoopTrial) and ask.rate > measured.limit(ask.setup) / 6
        return dataclasses.replace(told, latency=0.3) if misses else told

    best = best_of(run(search(SMALL), measured, change=change))
    assert best.rate <= measured.limit(best.setup) / 6


def test_without_any_execution_there_is_nothing_to_search() -> None:
    nothing = Measured(5.0, 0.0, math.inf, math.inf, math.inf, errors=9)
    halving = run(search(SMALL), server(), change=lambda ask, told: nothing)
    assert (halving.best(), halving.service, halving.standings) == (None, None, ())


def test_a_model_that_takes_no_batches_is_searched_over_its_instances() -> None:
    grid = candidates(0, instances=2, objective=WITHIN_100_MS)
    best = best_of(run(Halving(grid, WITHIN_100_MS), server()))
    assert best.setup == BatchSetup(0, 2, batches=False)


def test_a_prediction_that_is_off_for_all_setups_is_put_right_by_trials() -> None:
    """The calibration misses half of the time, as if calls cost more than executions tell."""

    def change(ask: Ask, told: Measured) -> Measured:
        if isinstance(ask, OpenLoopTrial):
            return told
        points = [dataclasses.replace(one, seconds=one.seconds / 2) for one in told.points]
        return Measured(
            *(told.seconds / 2, 2 * told.rate, 0.0, told.p50 / 2, told.p99 / 2),
            points=tuple(points),
        )

    best = best_of(run(search(SMALL), server(), change=change))
    assert best.rate == pytest.approx(server().limit(best.setup), rel=0.12)


def test_the_grid_has_each_size_with_each_delay_and_none() -> None:
    grid = candidates(6, instances=2, objective=WITHIN_100_MS, delays=[0.0, 0.001])
    assert len(grid) == len(set(grid)) == 2 * (1 + 3 * 2)
    assert {each.max_batch_size for each in grid if each.batches} == {2, 4, 6}
    assert grid[0] == BatchSetup(6, 1, batches=False)
    # delays are shares of the objective unless they are named
    grid = candidates(4, instances=1, objective=WITHIN_100_MS)
    assert sorted({each.delay for each in grid}) == [0.0, 0.002, 0.005, 0.015]


def test_calls_that_no_setup_takes_are_refused() -> None:
    with pytest.raises(Invalid, match="no configuration accepts calls of 16 rows"):
        Halving(SMALL, WITHIN_100_MS, rows=16)


# --- what trials make of the belief in a setup's limit -------------------------------------------

CURVE = np.interp(SHARES, (0.4, 1.0, 1.3), (-1.2, 0.0, 1.0))  # log(latency ÷ limit)
MISSED = 0.7  # of the same


def limit(*seen: SeenTrial) -> float:
    """In shares of the prediction."""
    return believed(1.0, 0.0, 0.3, CURVE, seen).rate


def test_a_miss_says_that_the_limit_is_lower_and_a_pass_that_it_is_higher() -> None:
    assert limit() == pytest.approx(1.0, abs=0.01)
    assert limit(SeenTrial(1.0, MISSED)) < 0.95
    assert limit(SeenTrial(1.0, -0.3)) > 1.05


def test_one_pause_of_the_machine_is_outvoted_by_two_trials_that_pass_above_it() -> None:
    assert limit(SeenTrial(0.7, MISSED)) < 0.85
    assert limit(SeenTrial(0.7, MISSED), SeenTrial(0.9, -0.2), SeenTrial(0.9, -0.2)) > 0.9


def test_who_is_swamped_may_get_less_done_than_who_is_just_busy() -> None:
    """Six tenths were got done of what was asked for: the limit may well be above that."""
    swamped = limit(SeenTrial(1.0, 9.0, worked_off=0.6))
    assert 0.65 < swamped < 0.95
