"""The policy, rule by rule: each test says what is seen, and what the hint has to be."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serve.capacity.scaling.policy import (
    HELD,
    PRICE,
    RECENT,
    REMEMBERED,
    RESTARTED,
    SLOT,
    TICK,
    UP,
    DemandMemory,
    PolicyState,
    Rate,
    begin,
    borne,
    decide,
    enough_for,
    follow,
)
from serve.capacity.scaling.signals import Bounds, Code, ModelSignal, PoolSignal, ReplicaHint
from serve.capacity.scaling.texts import asked

WIDE = Bounds(least=1, most=100)


def model(rate: float = 0.0, **more: Any) -> ModelSignal:
    """A model of which a replica bears 100 calls/s, with a steady rate."""
    made = ModelSignal("m", rate, rate, 0.0, 100.0, 2, limit=0.1, missed=0.0, pressure=0.1)
    return replace(made, **more)


def pool(*models: ModelSignal, at: float = 1000.0, **more: Any) -> PoolSignal:
    return replace(PoolSignal("p", at, 2, 0, models or (model(),)), **more)


def settled() -> PolicyState:
    """A policy that has watched for long, and in the last minutes has seen nothing."""
    return replace(begin(0.0), at=995.0, memory=DemandMemory(66, (0.0,) * 240))


def hint(*models: ModelSignal, bounds: Bounds = WIDE, **more: Any) -> ReplicaHint:
    return decide(settled(), pool(*models, **more), bounds)[1]


def followed(
    rates: Iterable[float],
    *,
    ready: int,
    state: PolicyState | None = None,
    begins: float = 1000.0,
) -> list[ReplicaHint]:
    """The hints tick by tick, for a pool that always becomes what they say."""
    state, hints = state or settled(), list[ReplicaHint]()
    for tick, rate in enumerate(rates):
        at = begins + tick * TICK
        seen = pool(model(rate=rate, holding=ready), at=at, ready=ready)
        state, found = decide(state, seen, WIDE)
        hints.append(found)
        ready = found.desired
    return hints


def desired(hints: Sequence[ReplicaHint]) -> list[int]:
    return [one.desired for one in hints]


def test_enough_replicas_are_wanted_to_be_busy_for_no_more_than_the_share_allows() -> None:
    found = hint(model(rate=300.0))
    assert found.demand == pytest.approx(3.0)
    assert found.desired == 4
    assert found.codes == {Code.DEMAND}
    large = replace(model(rate=10.0, capacity=5.0), name="large")
    assert hint(model(rate=100.0), large).demand == pytest.approx(1.0 + 2.0)


def test_a_rise_is_followed_at_once() -> None:
    state, _ = decide(settled(), pool(model(rate=100.0)), WIDE)
    _, found = decide(state, pool(model(lately=200.0, recent=400.0), at=1000.0 + TICK), WIDE)
    assert found.demand > 3.5


def test_a_backlog_is_worked_off_in_half_a_minute() -> None:
    usual = 0.5 * 0.1 * 100 * 2
    found = hint(model(rate=100.0, waiting=3000.0 + usual))
    assert found.demand == pytest.approx((100 + 3000 / 30) / 100)
    assert Code.BACKLOG in found.codes


def test_one_step_brings_no_more_than_twice_or_four_more() -> None:
    found = hint(model(rate=5000.0))
    assert found.desired == 6
    assert Code.STEP in found.codes


def test_fewer_are_wanted_only_when_no_more_was_needed_for_minutes() -> None:
    hints = followed([640.0, *[150.0] * 59], ready=8)
    held = int(HELD / TICK)
    assert set(desired(hints[:held])) == {8}
    assert hints[held + 4].desired == 4


def test_what_is_needed_again_and_again_is_kept() -> None:
    times = [RESTARTED + tick * TICK for tick in range(720)]
    rates = [800.0 if at % 600 < 100 and at < 2000 else 80.0 for at in times]
    hints = followed(rates, ready=8, state=begin(0.0), begins=RESTARTED)
    kept = hints[times.index(1750.0)]
    assert (kept.desired, kept.codes) == (8, {Code.KEPT})
    assert hints[times.index(3600.0)].desired == 8


def test_what_was_needed_once_in_a_long_time_is_let_go() -> None:
    hints = followed([800.0] * 20 + [80.0] * 40, ready=8)
    assert min(desired(hints[: int(HELD / TICK) + 1])) >= 8
    assert hints[-1].desired < 8


def test_a_half_a_minute_goes() -> None:
    seen = desired(followed([10.0] * 40, ready=16))
    assert (seen[0], seen[11], seen[12], seen[-1]) == (8, 8, 4, 1)


def test_none_goes_before_there_is_a_memory() -> None:
    hints = followed([10.0] * 60, ready=8, state=begin(0.0), begins=RESTARTED)
    first = next(tick for tick, one in enumerate(hints) if one.desired < 8)
    assert first * TICK >= HELD - 15.0


def test_none_goes_while_one_starts() -> None:
    found = hint(model(rate=10.0, holding=4), ready=4, starting=1)
    assert found.desired == 5
    assert found.codes == {Code.WAITING}


def test_what_cannot_be_trusted_changes_nothing() -> None:
    for change, code in (
        ({"age": 16.0}, Code.STALE),
        ({"recent": -1.0}, Code.INVALID),
        ({"lately": math.nan}, Code.INVALID),
        ({"waiting": math.inf}, Code.INVALID),
        ({"missed": 1.5}, Code.INVALID),
        ({"capacity": None}, Code.UNKNOWN),
        ({"capacity": 0.0}, Code.UNKNOWN),
    ):
        found = hint(model(**{"rate": 900.0} | change), ready=3, starting=1)
        assert (found.desired, found.codes, found.confidence) == (4, {code}, "low"), change


def test_a_start_of_the_control_plane_changes_nothing_for_a_minute() -> None:
    state = begin(1000.0)
    for at, codes in ((1000.0, {Code.RESTARTED}), (1000.0 + RESTARTED, {Code.DEMAND})):
        state, found = decide(state, pool(model(rate=300.0), at=at), WIDE)
        assert found.codes == codes


def test_a_missed_objective_adds_one_and_lowers_the_capacity() -> None:
    slow = model(rate=100.0, missed=0.05, pressure=3.0)
    state, found = decide(settled(), pool(slow), WIDE)
    assert found.desired == 3
    assert Code.MISSED in found.codes
    assert state.derated["m"] == pytest.approx(0.9)
    state, _ = decide(state, pool(slow, at=1000.0 + TICK), WIDE)
    assert state.derated["m"] > 0.9  # once a minute


def test_a_miss_while_too_few_are_there_says_nothing_of_the_capacity() -> None:
    slow = model(rate=900.0, missed=0.5, pressure=3.0)
    state, found = decide(settled(), pool(slow), WIDE)
    assert state.derated["m"] == 1.0
    state, found = decide(state, pool(slow, at=1000.0 + TICK, ready=2, starting=9), WIDE)
    assert (state.derated["m"], found.desired) == (1.0, 11)


def test_what_is_right_stays_and_a_miss_without_a_queue_is_not_for_more_replicas_to_mend() -> None:
    assert hint(model(rate=140.0)).codes == {Code.STEADY}
    assert hint(model(rate=140.0, missed=0.5, pressure=0.2)).codes == {Code.STEADY}


def test_a_missed_objective_is_heard_where_the_capacity_is_unknown() -> None:
    found = hint(model(rate=100.0, capacity=None, missed=0.2, pressure=3.0))
    assert found.desired == 3
    assert found.codes == {Code.UNKNOWN, Code.MISSED}


def test_gpus_that_have_time_or_empty_batches_get_no_company() -> None:
    idle = hint(model(rate=900.0, waiting=50.0), utilization=0.2)
    assert (idle.desired, Code.NOT_GPU_BOUND in idle.codes) == (2, True)
    empty = hint(model(rate=900.0, occupancy=0.1), utilization=1.0)
    assert (empty.desired, Code.BATCHING in empty.codes) == (2, True)
    busy = model(rate=300.0, occupancy=0.8)
    assert hint(busy, utilization=0.9) == hint(busy)


def test_many_idle_models_beside_a_busy_one_change_nothing() -> None:
    idle = [replace(model(), name=f"idle-{number}", capacity=None) for number in range(40)]
    assert hint(model(rate=300.0), *idle).desired == hint(model(rate=300.0)).desired


def test_a_model_that_is_called_no_more_needs_no_capacity_to_be_known() -> None:
    gone = replace(model(rate=50.0), name="gone")
    state, _ = decide(settled(), pool(model(rate=100.0), gone), WIDE)
    gone = replace(gone, recent=0.0, lately=0.0, capacity=None)
    _, found = decide(state, pool(model(rate=100.0), gone, at=1000.0 + TICK), WIDE)
    assert found.confidence == "high"


def test_a_replica_without_the_model_is_told() -> None:
    assert Code.NOT_HELD in hint(model(rate=300.0, holding=1)).codes


def test_people_have_the_last_word() -> None:
    for bounds, desired, code in (
        (Bounds(least=1, most=3), 3, Code.MOST),
        (Bounds(least=1, most=9, budget=3), 3, Code.BUDGET),
        (Bounds(least=7, most=9), 7, Code.LEAST),
    ):
        found = hint(model(rate=500.0), bounds=bounds)
        assert (found.desired, code in found.codes) == (desired, True)


def test_an_idle_pool_has_none_where_that_is_allowed_and_one_for_the_first_call() -> None:
    allowed = Bounds(least=2, most=100, to_zero=True)
    assert hint(idle=299.0, bounds=allowed).desired == 2
    assert hint(idle=600.0, bounds=allowed).desired == 0
    assert hint(idle=600.0, bounds=allowed, cold_start=90.0).desired == 2
    assert hint(idle=600.0).desired == 1
    waking = hint(model(waiting=1.0), ready=0, bounds=allowed)
    assert (waking.desired, waking.codes) == (1, {Code.WAKING})


def test_it_settles_and_stays() -> None:
    seen = [1, *desired(followed([300.0] * 400, ready=1))]
    assert seen[-1] == 4
    assert sum(one != other for one, other in itertools.pairwise(seen)) == 1


# --- staffing: some to spare, by the root in small pools and by a share in large ones ------------


def test_small_pools_have_a_larger_share_to_spare() -> None:
    assert (enough_for(0.0), borne(0)) == (0, 0.0)
    assert 0.6 < borne(1) < 0.7
    assert 0.7 < borne(2) / 2 < 0.8
    assert borne(100) / 100 == UP


def test_so_many_are_enough_for_what_they_bear_and_for_no_more() -> None:
    for replicas in (1, 2, 3, 10, 16, 17, 100, 5000):
        assert enough_for(borne(replicas)) == replicas
        assert enough_for(borne(replicas) + 1e-6) == replicas + 1


# --- rates: chance is not run after, and a change is followed at once --------------------------


def rates_after(rates: list[float]) -> list[Rate]:
    """What is believed after each five seconds that had so many calls per second."""
    known: Rate | None = None
    found: list[Rate] = []
    for tick, recent in enumerate(rates):
        lately = sum(rates[max(0, tick - 2) : tick + 1]) / min(3, tick + 1)
        known = follow(known, recent, lately, RECENT)
        found.append(known)
    return found


def test_chance_is_smoothed() -> None:
    counts = np.random.default_rng(1).poisson(100.0 * RECENT, 500) / RECENT
    found = [one.now for one in rates_after(counts.tolist())][20:]
    assert max(found) < 108 and min(found) > 92


def test_what_scatters_more_is_smoothed_as_well() -> None:
    counts = np.random.default_rng(2).gamma(4.0, 25.0, 500)
    found = rates_after(counts.tolist())[100:]
    assert math.sqrt(found[-1].variance) == pytest.approx(50.0, rel=0.5)
    assert np.quantile([one.now for one in found], 0.95) < 170


def test_a_jump_is_followed_at_once_up_and_down() -> None:
    up = rates_after([100.0] * 50 + [400.0] * 5)
    assert up[50].now > 350 and up[52].now > 380
    assert math.sqrt(up[50].variance) < 10  # it is none of the scatter
    down = rates_after([400.0] * 50 + [100.0] * 5)
    assert down[52].now < 120


def test_a_steady_rate_is_itself_and_no_calls_are_no_rate() -> None:
    assert {one.now for one in rates_after([80.0] * 50)} == {80.0}
    assert rates_after([0.0] * 3)[-1].now == 0.0
    assert rates_after([50.0] * 20 + [0.0] * 100)[-1].now == pytest.approx(0.0, abs=0.1)


# --- the memory of a pool: what pays is kept, what does not is let go ----------------------------


def remembered(*needs: tuple[float, float]) -> DemandMemory:
    """Needs, each for so many seconds."""
    memory, at = DemandMemory(), 0.0
    for need, seconds in needs:
        for _ in range(round(seconds / 5)):
            memory = memory.noted(at, need)
            at += 5.0
    return memory


def test_an_hour_is_remembered_in_slots_each_with_the_most_of_its_time() -> None:
    assert remembered((1.0, 10.0), (3.0, 5.0), (2.0, 15.0)).needs == (3.0, 2.0)
    memory = remembered((5.0, 60.0), (1.0, REMEMBERED))
    assert memory.seconds == REMEMBERED
    assert memory.most(REMEMBERED) == 1.0
    memory = remembered((9.0, 60.0), (2.0, 60.0))
    assert (memory.most(45.0), memory.most(60.0), DemandMemory().most(60.0)) == (2.0, 9.0, 0.0)


def test_a_time_in_which_nobody_looked_was_like_what_is_seen_after_it() -> None:
    memory = DemandMemory().noted(0.0, 4.0).noted(50.0, 2.0)
    assert memory.needs == (4.0, 2.0, 2.0, 2.0)
    assert memory.noted(50.0 + 2 * REMEMBERED, 1.0).needs == (1.0,)


def test_what_came_once_is_kept_for_as_long_as_a_start_is_worth() -> None:
    start = 60.0
    for passed, kept in ((-SLOT, 8), (2 * SLOT, 2)):
        memory = remembered((2.0, 300.0), (7.5, 300.0), (2.0, start / PRICE - 300.0 + passed))
        assert memory.kept(2, start) == kept


def test_what_comes_back_again_and_again_is_kept_longer() -> None:
    often = remembered(*[(2.0, 300.0), (8.0, 120.0)] * 5, (2.0, 1200.0))
    once = remembered((2.0, 1980.0), (8.0, 120.0), (2.0, 1200.0))
    assert (often.kept(2, 30.0), once.kept(2, 30.0)) == (8, 2)


def test_what_starts_at_once_or_was_shorter_than_a_start_need_not_be_kept() -> None:
    assert remembered((9.0, 60.0), (1.0, 60.0)).kept(1, 0.0) == 1
    assert remembered((1.0, 300.0), (9.0, SLOT), (1.0, 600.0)).kept(1, 60.0) == 1


def test_the_wish_is_held_against_what_is_there() -> None:
    for desired, ready, starting, words in (
        (3, 2, 0, "3 replicas, 1 more than now"),
        (3, 1, 0, "3 replicas, 2 more than now"),
        (1, 0, 0, "1 replica, 1 more than now"),
        (1, 3, 0, "1 replica, 2 fewer than now"),
        (0, 1, 0, "no replicas, 1 fewer than now"),
        (2, 2, 0, "2 replicas"),
        (3, 2, 1, "3 replicas, 1 of them starting"),
        (4, 2, 2, "4 replicas, 2 of them starting"),
        (0, 0, 0, "no replicas, scaled to zero"),
    ):
        assert asked(desired, ready, starting) == words
