"""What one replica bears of a model, from what Triton has counted."""

import asyncio
import dataclasses
from collections.abc import Mapping

import pytest
from builders import Clock, replica
from control.scaling.watched_pools import BATCHES, counted

from serve.control.batching.observer import BatchingObserver, Counted, Slot
from serve.control.fleet import Fleet
from serve.control.scaling.capacities import Capacities
from serve.control.scaling.setups import Setups
from serve.core.replicas import Replica
from serve.triton.config import Configuration, parse
from serve.triton.metrics import ModelReading, ReplicaScrape
from serve.triton.model_counters import NOTHING, Counters

ONE, TWO = ("m", 1), ("m", 2)


class Scene:
    """One replica; a test says what it has executed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fleet = Fleet((replica("a"),), clock=self.clock)
        self.fleet.saw("a", {"m": (1, 2)})
        self.observer = BatchingObserver(self.fleet, self, clock=self.clock)
        self.told: dict[Slot, Counters] = {}
        self.pending: dict[Slot, int] = {}
        self.config = BATCHES
        self.setups = Setups(self.ask, decided=dict, clock=self.clock)
        self.capacities = Capacities(self.observer, self.setups)
        self.look()

    async def counters(self, one: Replica) -> Counted:
        return dict(self.told)

    async def readings(self, one: Replica) -> ReplicaScrape:
        models = {slot: ModelReading(0, 0, 0, 0, n, 0.0, 0.0) for slot, n in self.pending.items()}
        return ReplicaScrape(models, {}, None)

    async def ask(self, one: Replica, name: str) -> Configuration:
        return parse(self.config)

    def look(self, told: Mapping[Slot, Counters] | None = None, after: float = 5.0) -> None:
        """Some seconds later the replica has counted this, or the same as before."""
        self.clock.now += after
        self.told = dict(told or self.told)
        asyncio.run(self.observer.observe())
        asyncio.run(self.setups.learn({("p", "m"): replica("a")}))
        self.done = self.capacities.learn("p", ["a"], self.clock())

    def capacity(
        self, *slots: Slot, limit: float | None = None, outside: float = 0.0
    ) -> float | None:
        return self.capacities.of(
            "p", slots or (ONE,), self.done, limit=limit, outside=outside, now=self.clock()
        )


def test_nothing_is_known_before_enough_was_executed() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (10, 0.01), 2: (10, 0.012)})})
    assert scene.capacity() is None
    scene.look({ONE: counted({1: (30, 0.01), 2: (30, 0.012)})})
    assert scene.capacity() == pytest.approx(8 / 0.024, rel=0.01)


def test_versions_count_by_the_calls_that_they_get() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (300, 0.01)}), TWO: counted({1: (100, 0.05)})})
    fast, slow = scene.capacity(ONE), scene.capacity(TWO)
    assert (fast, slow) == (pytest.approx(100.0), pytest.approx(20.0))
    assert scene.capacity(ONE, TWO) == pytest.approx(1 / (0.75 / 100 + 0.25 / 20))


def test_a_version_of_which_nothing_is_known_is_taken_for_one_like_the_others() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (300, 0.01)}), TWO: counted({1: (3, 0.05)})})
    assert scene.capacity(ONE, TWO) == scene.capacity(ONE)


def test_what_a_call_takes_outside_of_triton_leaves_less_for_the_batch() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (300, 0.010), 8: (300, 0.024)})})
    assert scene.capacity(limit=0.048) == pytest.approx(8 / 0.024)
    assert scene.capacity(limit=0.048, outside=0.004) == pytest.approx(7 / 0.022)
    most = scene.capacity(limit=0.048, outside=0.012)
    assert scene.capacity(limit=0.048, outside=9.0) == most  # which no replica could mend


def test_no_more_is_believed_than_a_little_above_what_was_borne_while_a_batch_waited() -> None:
    scene = Scene()
    scene.pending = {ONE: 20}
    scene.look()
    for rounds in range(1, 4):
        scene.look({ONE: counted({1: (100 * rounds, 0.010), 8: (100 * rounds, 0.024)})})
    assert scene.capacity() == pytest.approx(1.1 * 900 / 5.0)


def test_what_waits_only_at_the_end_of_a_round_says_nothing_of_what_can_be_borne() -> None:
    scene = Scene()
    scene.told = {ONE: counted({1: (100, 0.010), 8: (100, 0.024)})}
    scene.pending = {ONE: 20}
    scene.look()
    assert scene.capacity() == pytest.approx(8 / 0.024)


def test_what_is_run_in_another_way_is_learned_anew() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (300, 0.010), 8: (300, 0.024)})})
    assert scene.capacity() is not None
    scene.config = BATCHES.replace("count: 1", "count: 2")
    scene.look({ONE: counted({1: (310, 0.010), 8: (310, 0.024)})}, after=61.0)
    assert scene.capacity() is None
    scene.look({ONE: counted({1: (400, 0.010), 8: (400, 0.024)})})
    assert scene.capacity() == pytest.approx(2 * 8 / 0.024)


def test_what_was_known_is_remembered_while_nobody_calls_for_two_hours() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (100, 0.010), 8: (100, 0.024)})})
    known = scene.capacity()
    scene.look(after=7000.0)
    assert scene.capacity() == known
    scene.look(after=300.0)
    assert scene.capacity() is None


def test_a_backend_that_tells_no_sizes_is_known_by_its_mean_execution() -> None:
    scene = Scene()
    sized = counted({2: (100, 0.02)})
    scene.look({ONE: dataclasses.replace(sized, sizes={})})
    assert scene.capacity() == pytest.approx(100.0)


def test_what_is_gone_is_forgotten() -> None:
    scene = Scene()
    scene.look({ONE: counted({1: (300, 0.01)})})
    scene.capacities.forget(["a"], ["other"])
    assert repr(scene.capacities) == "<Capacities 0>"


def test_what_was_done_in_the_last_minute_is_told_by_version() -> None:
    scene = Scene()
    for count in range(1, 40):
        scene.look({ONE: counted({1: (count, 0.01)})})
    assert scene.done[ONE].calls == 12
    assert scene.done.get(TWO, NOTHING).calls == 0
