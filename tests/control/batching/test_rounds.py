"""Rounds: who is read how often, and how many at one time."""

import asyncio

from builders import Clock, replica

from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import AT_ONCE, KEPT, LARGE, BatchingObserver, Counted
from serve.control.batching.rounds import Rounds
from serve.control.fleet import Fleet
from serve.core.replicas import Replica
from serve.triton.metrics import ReplicaScrape


class Scene:
    """So many replicas, and a gateway; `asked` counts who was asked, `most` at one time."""

    def __init__(self, replicas: int) -> None:
        names = [f"r{number:05}" for number in range(replicas)]
        self.clock = Clock()
        self.asked = {"replicas": 0, "gateway": 0}
        self.now = self.most = 0
        fleet = Fleet(tuple(replica(name) for name in names), clock=self.clock)
        for name in names:
            fleet.saw(name, {})
        self.observer = BatchingObserver(fleet, self, clock=self.clock)
        self.rounds = Rounds(self.observer, Latencies(KEPT), self, clock=self.clock)

    async def counters(self, replica: Replica) -> Counted:
        self.asked["replicas"] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return {}

    async def readings(self, replica: Replica) -> ReplicaScrape | None:
        return None

    async def metrics(self) -> str:
        self.asked["gateway"] += 1
        return "# nothing"

    def refresh(self, within: float, *, after: float = 0.0) -> None:
        """Some seconds after the last time, read what was not read `within` some seconds."""
        self.clock.now += after
        asyncio.run(self.rounds.refresh(within))


def test_everybody_is_read_unless_that_was_done_a_moment_ago() -> None:
    scene = Scene(2)
    for after, within, replicas, gateway in (
        (0.0, 0.0, 2, 1),
        (0.0, 0.0, 4, 2),  # whenever it is to be shown
        (2.9, 3.0, 4, 2),
        (0.1, 3.0, 6, 3),
    ):
        scene.refresh(within, after=after)
        assert scene.asked == {"replicas": replicas, "gateway": gateway}


def test_the_replicas_of_a_large_fleet_are_read_more_rarely_than_the_gateway() -> None:
    scene = Scene(2 * LARGE)
    for _ in range(4):
        scene.refresh(1.0, after=5.0)
    assert scene.asked == {"replicas": 2 * 2 * LARGE, "gateway": 4}


def test_only_so_many_replicas_are_asked_at_one_time() -> None:
    scene = Scene(5 * AT_ONCE)
    scene.refresh(0.0)
    assert scene.asked["replicas"] == 5 * AT_ONCE
    assert scene.most == AT_ONCE
