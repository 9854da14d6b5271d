"""What replicas have counted, reading by reading, and how often they are read."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from builders import Clock, replica

from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import AT_ONCE, KEPT, LARGE, BatchingObserver, Counted, Slot
from serve.control.batching.rounds import Rounds
from serve.control.batching.windows import CountWindow
from serve.control.fleet import Fleet
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.metrics import GpuReading, ModelReading, ReplicaScrape
from serve.triton.model_counters import NOTHING, Counters, Executed

M: Slot = ("m", 1)


class Scene:
    """Two replicas that tell what a test says."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fleet = Fleet((replica("a"), replica("b")), clock=self.clock)
        self.told: dict[str, Counted | None] = {}
        self.read: dict[str, ReplicaScrape] = {}
        self.observer = BatchingObserver(self.fleet, self, clock=self.clock)
        for name in ("a", "b"):
            self.fleet.saw(name, {"m": (1,)})

    async def counters(self, replica: Replica) -> Counted:
        found = self.told.get(replica.name)
        if found is None:
            raise Unavailable("it does not answer")
        return found

    async def readings(self, replica: Replica) -> ReplicaScrape | None:
        return self.read.get(replica.name)

    def look(self, after: float = 15.0, **told: Counted | None) -> None:
        """One round, so many seconds after the one before."""
        self.clock.now += after
        self.told = told
        asyncio.run(self.observer.observe())

    def count(self, *calls: int) -> None:
        """A round for each number of calls that replica `a` has counted."""
        for each in calls:
            self.look(a=some(each))

    @property
    def window(self) -> CountWindow:
        return self.observer.window(*M)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def some(calls: int, **others: int) -> Mapping[Slot, Counters]:
    """So many calls, each an execution of one row."""
    sizes = {1: Executed(calls, 5 * calls)} if calls else {}
    return {M: Counters(calls=calls, rows=calls, executions=calls, sizes=sizes, **others)}


def metrics(pending: int = 0, cpu: float | None = None) -> ReplicaScrape:
    reading = ModelReading(0, 0, 0, 0, pending, 0.0, 0.0)
    return ReplicaScrape({M: reading}, {}, cpu)


def test_what_rises_between_two_readings_counts_and_replicas_are_summed(scene: Scene) -> None:
    scene.look(a=some(1000), b=some(0))
    assert scene.window.counted == NOTHING
    scene.look(a=some(1030), b=some(90))
    window = scene.window
    assert window.replicas == {"a": 15.0, "b": 15.0}
    assert (window.counted.calls, window.rate, window.rate_per_replica) == (120, 8.0, 4.0)
    assert window.counted.sizes == {1: Executed(120, 600)}


def test_a_version_that_was_loaded_anew_begins_anew_and_its_round_says_so(scene: Scene) -> None:
    scene.count(0, 500, 10)
    window = scene.window
    assert (window.counted.calls, window.seconds) == (10, 15.0)
    scene.count(14)
    assert scene.window.counted.calls == 14
    assert [one.fell for one in scene.observer.rounds("a", 0.0)] == [False, True, False]


def test_a_replica_that_does_not_answer_is_counted_on_when_it_does(scene: Scene) -> None:
    scene.count(0)
    scene.look(a=None)
    scene.count(60)
    window = scene.window
    assert (window.counted.calls, window.seconds, window.rate) == (60, 30.0, 2.0)


def test_a_version_that_comes_counts_from_zero_and_one_that_goes_is_forgotten(scene: Scene) -> None:
    scene.look(a={})
    scene.count(15)
    assert scene.window.counted.calls == 15
    scene.look(a={})
    assert scene.window.replicas == {}
    scene.count(4)
    assert scene.window.counted.calls == 4


def test_what_a_replica_counts_while_it_is_steered_around_is_no_call_of_anybody(
    scene: Scene,
) -> None:
    scene.count(0, 10)
    with scene.fleet.steering("a"):
        scene.count(9000)
        newest = scene.observer.newest("a")  # it is heard all the same
        assert newest is not None
        assert (newest.at, scene.observer.heard("a")) == (scene.clock() - 15.0, scene.clock())
    scene.count(9500)
    assert scene.window.counted.calls == 10
    scene.count(9505)
    assert scene.window.counted.calls == 15
    with scene.fleet.steering("a"):
        scene.count(0)  # it was loaded anew meanwhile, and begins after the next reading
    scene.count(7)
    assert scene.window.replicas == {}
    scene.count(9)
    assert scene.window.counted.calls == 2


def test_a_few_minutes_are_kept_and_a_replica_that_goes_takes_its_past_along(scene: Scene) -> None:
    scene.count(*range(0, 1500, 15))
    window = scene.window
    assert (window.seconds, window.rate) == (KEPT, 1.0)
    assert repr(scene.observer) == "<BatchingObserver replicas=2 rounds=20>"
    scene = Scene()
    scene.look(a=some(0), b=some(0))
    scene.look(a=some(30), b=some(30))
    scene.fleet.lost("b", "refused")
    scene.count(*[30] * 21)
    assert scene.window.replicas == {"a": KEPT}


def test_queues_and_machines_are_told_by_the_replicas_own_metrics(scene: Scene) -> None:
    scene.read["a"] = metrics(cpu=0.5)
    scene.count(0)
    scene.read["a"] = metrics(pending=3, cpu=0.7)
    scene.count(10)
    window = scene.window
    assert (window.pending, window.cpu, window.gpu) == (3, 0.7, None)
    scene.look(after=60.0, a=None)
    assert scene.window.pending == 0
    gpus = {str(each): GpuReading(each / 10, None, None, None) for each in (2, 6)}
    scene.read["a"] = ReplicaScrape({}, gpus, None)
    scene.count(20, 30)
    assert scene.window.gpu == 0.6  # the busiest is what a machine has room on


def test_nothing_is_known_of_what_nobody_has(scene: Scene) -> None:
    window = scene.observer.window("x", 9)
    assert (window.counted, window.seconds, window.rate) == (NOTHING, 0.0, 0.0)
    assert (window.queue, window.compute, window.busy(1)) == (0.0, 0.0, 0.0)
    assert (window.rows_per_execution, window.calls_per_execution, window.largest) == (0, 0, 0)
    assert scene.observer.heard("b") is scene.observer.newest("b") is None


def test_each_round_of_a_replica_is_told_to_who_asks_for_newer_ones(scene: Scene) -> None:
    scene.count(0, 10, 30, 60)
    rounds = scene.observer.rounds("a", scene.clock() - 20)
    assert [one.risen[M].calls for one in rounds] == [20, 30]
    assert scene.observer.rounds("b", 0.0) == scene.observer.rounds("nobody", 0.0) == ()


def test_calls_count_as_waiting_when_they_do_so_at_both_ends_of_a_round(scene: Scene) -> None:
    for pending in (0, 9, 4, 7):
        scene.read = {"a": metrics(pending=pending)}
        scene.count(0)
    assert [dict(one.waited) for one in scene.observer.rounds("a", 0.0)] == [{}, {M: 4}, {M: 4}]


def test_another_replica_of_the_same_name_begins_anew(scene: Scene) -> None:
    scene.count(500, 600)
    scene.fleet.remove("a")
    scene.fleet.join(replica("a", http=9000))
    scene.fleet.saw("a", {"m": (1,)})
    scene.count(3, 5)
    assert scene.window.counted.calls == 2
    assert not any(one.fell for one in scene.observer.rounds("a", 0.0))


def test_a_replica_that_leaves_while_it_is_asked_is_passed_over(scene: Scene) -> None:

    async def leaves(one: Replica) -> Mapping[Slot, Counters]:
        scene.fleet.remove(one.name)
        return some(1)

    scene.observer = BatchingObserver(scene.fleet, scene, clock=scene.clock)
    scene.counters = leaves  # type: ignore[method-assign]
    asyncio.run(scene.observer.observe())
    scene.look()
    assert repr(scene.observer) == "<BatchingObserver replicas=0 rounds=0>"


# --- rounds: who is read how often, and how many at one time --------------------------------------


class Rounded:
    """So many replicas, and a gateway; `asked` counts who was asked, `most` at one time.

    Rounds go on until there is nothing more to do `between` them.
    """

    def __init__(self, replicas: int) -> None:
        names = [f"r{number:05}" for number in range(replicas)]
        self.clock = Clock()
        self.asked = {"replicas": 0, "gateway": 0}
        self.now = self.most = 0
        self.is_broken = False
        self.slept_for: list[float] = []
        self.between: list[Callable[[], object]] = []
        self.fleet = Fleet(tuple(replica(name) for name in names), clock=self.clock)
        for name in names:
            self.fleet.saw(name, {})
        observer = BatchingObserver(self.fleet, self, clock=self.clock)
        self.rounds = Rounds(observer, Latencies(KEPT), self, clock=self.clock, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept_for.append(seconds)
        self.clock.now += seconds
        if not self.between:
            raise asyncio.CancelledError
        self.between.pop(0)()

    async def counters(self, replica: Replica) -> Counted:
        if self.is_broken:
            raise RuntimeError("nobody expects this")
        self.asked["replicas"] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return {}

    async def readings(self, replica: Replica) -> ReplicaScrape | None:
        return None

    async def metrics(self) -> str:
        if self.is_broken:
            raise Unavailable("no gateway")
        self.asked["gateway"] += 1
        return "# nothing"

    def refresh(self, within: float, *, after: float = 0.0) -> None:
        """Some seconds after the last time, read what was not read `within` some seconds."""
        self.clock.now += after
        asyncio.run(self.rounds.refresh(within))


def test_everybody_is_read_unless_that_was_done_a_moment_ago() -> None:
    scene = Rounded(2)
    for after, within, replicas, gateway in (
        (0.0, 0.0, 2, 1),
        (0.0, 0.0, 4, 2),  # whenever it is to be shown
        (2.9, 3.0, 4, 2),
        (0.1, 3.0, 6, 3),
    ):
        scene.refresh(within, after=after)
        assert scene.asked == {"replicas": replicas, "gateway": gateway}


def test_the_replicas_of_a_large_fleet_are_read_more_rarely_than_the_gateway() -> None:
    scene = Rounded(2 * LARGE)
    for _ in range(4):
        scene.refresh(1.0, after=5.0)
    assert scene.asked == {"replicas": 2 * 2 * LARGE, "gateway": 4}


def test_only_so_many_replicas_are_asked_at_one_time() -> None:
    scene = Rounded(5 * AT_ONCE)
    scene.refresh(0.0)
    assert scene.asked["replicas"] == 5 * AT_ONCE
    assert scene.most == AT_ONCE


def test_rounds_go_on_whatever_goes_wrong_with_one(caplog: pytest.LogCaptureFixture) -> None:
    scene = Rounded(2)
    scene.is_broken = True
    scene.between = [int, int]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scene.rounds.run(lambda: None))
    assert scene.slept_for == [15.0, 15.0, 15.0]
    assert "the batching statistics could not be read" in caplog.text


def test_rounds_come_faster_until_every_replica_was_read_once() -> None:
    scene = Rounded(2)
    for name in ("r00000", "r00001"):
        scene.fleet.lost(name, "it starts")
    scene.between = [int, lambda: scene.fleet.saw("r00000", {}), int]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scene.rounds.run(lambda: None))
    assert scene.slept_for == [1.0, 1.0, 15.0, 15.0]
