"""What one replica bears of a model: how it is run, and what it has executed."""

import asyncio
import dataclasses
from collections.abc import Mapping

import pytest
from builders import Clock, replica
from control.scaling.watched_pools import BATCHES, counted

from serve.control.batching.observer import BatchingObserver, Counted, Slot
from serve.control.fleet import Fleet
from serve.control.scaling.capacities import Capacities
from serve.control.scaling.setups import SetUp, Setups
from serve.core.errors import Unavailable
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


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_known_before_enough_was_executed(scene: Scene) -> None:
    scene.look({ONE: counted({1: (10, 0.01), 2: (10, 0.012)})})
    assert scene.capacity() is None
    scene.look({ONE: counted({1: (30, 0.01), 2: (30, 0.012)})})
    assert scene.capacity() == pytest.approx(8 / 0.024, rel=0.01)


def test_versions_count_by_the_calls_that_they_get_and_one_that_is_not_known_like_the_others(
    scene: Scene,
) -> None:
    scene.look({ONE: counted({1: (300, 0.01)}), TWO: counted({1: (3, 0.05)})})
    assert scene.capacity(ONE, TWO) == scene.capacity(ONE) == pytest.approx(100.0)
    scene.look({ONE: counted({1: (300, 0.01)}), TWO: counted({1: (100, 0.05)})})
    assert scene.capacity(TWO) == pytest.approx(20.0)
    assert scene.capacity(ONE, TWO) == pytest.approx(1 / (0.75 / 100 + 0.25 / 20))


def test_what_a_call_takes_outside_of_triton_leaves_less_for_the_batch(scene: Scene) -> None:
    scene.look({ONE: counted({1: (300, 0.010), 8: (300, 0.024)})})
    assert scene.capacity(limit=0.048) == pytest.approx(8 / 0.024)
    assert scene.capacity(limit=0.048, outside=0.004) == pytest.approx(7 / 0.022)
    most = scene.capacity(limit=0.048, outside=0.012)
    assert scene.capacity(limit=0.048, outside=9.0) == most  # which no replica could mend


def test_no_more_is_believed_than_a_little_above_what_was_borne_while_a_batch_waited(
    scene: Scene,
) -> None:
    scene.pending = {ONE: 20}
    scene.look()
    for rounds in range(1, 4):
        scene.look({ONE: counted({1: (100 * rounds, 0.010), 8: (100 * rounds, 0.024)})})
    assert scene.capacity() == pytest.approx(1.1 * 900 / 5.0)


def test_what_waits_only_at_the_end_of_a_round_says_nothing_of_what_can_be_borne(
    scene: Scene,
) -> None:
    scene.told = {ONE: counted({1: (100, 0.010), 8: (100, 0.024)})}
    scene.pending = {ONE: 20}
    scene.look()
    assert scene.capacity() == pytest.approx(8 / 0.024)


def test_what_is_run_in_another_way_is_learned_anew(scene: Scene) -> None:
    scene.look({ONE: counted({1: (300, 0.010), 8: (300, 0.024)})})
    assert scene.capacity() is not None
    scene.config = BATCHES.replace("count: 1", "count: 2")
    scene.look({ONE: counted({1: (310, 0.010), 8: (310, 0.024)})}, after=61.0)
    assert scene.capacity() is None
    scene.look({ONE: counted({1: (400, 0.010), 8: (400, 0.024)})})
    assert scene.capacity() == pytest.approx(2 * 8 / 0.024)


def test_what_was_known_is_remembered_for_two_hours_unless_its_pool_is_gone(scene: Scene) -> None:
    scene.look({ONE: counted({1: (100, 0.010), 8: (100, 0.024)})})
    known = scene.capacity()
    scene.look(after=7000.0)
    assert scene.capacity() == known
    scene.look(after=300.0)
    assert scene.capacity() is None
    scene.look({ONE: counted({1: (500, 0.010), 8: (500, 0.024)})})
    assert scene.capacity() is not None
    scene.capacities.forget(["a"], ["other"])
    assert repr(scene.capacities) == "<Capacities 0>"


def test_a_backend_that_tells_no_sizes_is_known_by_its_mean_execution(scene: Scene) -> None:
    sized = counted({2: (100, 0.02)})
    scene.look({ONE: dataclasses.replace(sized, sizes={})})
    assert scene.capacity() == pytest.approx(100.0)


def test_what_was_done_in_the_last_minute_is_told_by_version(scene: Scene) -> None:
    for count in range(1, 40):
        scene.look({ONE: counted({1: (count, 0.01)})})
    assert scene.done[ONE].calls == 12
    assert scene.done.get(TWO, NOTHING).calls == 0


# --- how what is called is run, as a Triton of its pool tells -------------------------------------

TEXT = "max_batch_size: 16\ndynamic_batching { }\ninstance_group [{ kind: KIND_CPU count: 3 }]\n"
WHERE = ("p", "m")


class Asked:
    """A Triton that tells how it runs a model, and how often it was asked; what was decided."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.times = 0
        self.tells: str | None = TEXT
        self.decided: dict[str, Configuration] = {}
        self.setups = Setups(self.ask, decided=lambda: self.decided, clock=self.clock)

    async def ask(self, one: Replica, name: str) -> Configuration:
        self.times += 1
        if self.tells is None:
            raise Unavailable("it does not answer")
        return parse(self.tells)

    def learn(self, after: float = 0.0) -> SetUp | None:
        self.clock.now += after
        asyncio.run(self.setups.learn({WHERE: replica("a")}))
        return self.setups.of(*WHERE)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_triton_is_asked_once_a_minute(asked: Asked) -> None:
    assert asked.learn() == SetUp(3, 16, batches=True)
    asked.learn(after=30.0)
    assert asked.times == 1
    asked.tells = TEXT.replace("16", "8")
    assert asked.learn(after=31.0) == SetUp(3, 8, batches=True)
    asked.tells = None  # what it told before stays
    assert asked.learn(after=61.0) == SetUp(3, 8, batches=True)


def test_where_it_does_not_tell_what_was_decided_holds(asked: Asked) -> None:
    asked.tells = None
    assert asked.learn() is None
    asked.decided = {"m": parse("max_batch_size: 4\n")}
    assert asked.learn(after=60.0) == SetUp(1, 4)


def test_the_parts_of_an_ensemble_are_known(asked: Asked) -> None:
    asked.tells = (
        'platform: "ensemble"\nensemble_scheduling { step { model_name: "x" model_version: -1 } '
        'step { model_name: "y" model_version: 4 } }\n'
    )
    found = asked.learn()
    assert found is not None
    assert found.parts == (("x", -1), ("y", 4))


def test_what_nobody_holds_any_more_is_remembered_for_two_hours(asked: Asked) -> None:
    asked.learn()
    for after, known in ((7000.0, True), (300.0, False)):
        asked.clock.now += after
        asyncio.run(asked.setups.learn({}))
        assert (asked.setups.of(*WHERE) is not None) is known


def test_no_more_than_fifty_are_asked_for_in_a_round(asked: Asked) -> None:
    holders = {("p", f"m{number}"): replica("a") for number in range(70)}
    for times in (50, 70, 70):
        asyncio.run(asked.setups.learn(holders))
        assert asked.times == times
