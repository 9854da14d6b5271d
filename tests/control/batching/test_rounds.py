"""Rounds: who is read how often, and how many at one time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from builders import Clock, replica

from serve.control.batching.latencies import Latencies
from serve.control.batching.observing import AT_ONCE, KEPT, LARGE, Counted, Observer
from serve.control.batching.rounds import Rounds
from serve.control.fleet import Fleet
from serve.core.replicas import Replica
from serve.triton.metrics import Readings


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
        self.observer = Observer(fleet, self, clock=self.clock)
        self.rounds = Rounds(self.observer, Latencies(KEPT), self, clock=self.clock)

    async def counters(self, replica: Replica) -> Counted:
        self.asked["replicas"] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return {}

    async def readings(self, replica: Replica) -> Readings | None:
        return None

    async def metrics(self) -> str:
        self.asked["gateway"] += 1
        return "# nothing"


def play(scene: Scene, work: Callable[[Scene], Awaitable[None]]) -> Mapping[str, int]:
    asyncio.run(work(scene))  # type: ignore[arg-type]
    return scene.asked


def test_everybody_is_read_whenever_somebody_wants_to_see() -> None:
    async def work(scene: Scene) -> None:
        for _ in range(3):
            await scene.rounds.refresh(0.0)

    assert play(Scene(2), work) == {"replicas": 6, "gateway": 3}


def test_what_was_read_a_moment_ago_is_not_read_again() -> None:
    async def work(scene: Scene) -> None:
        await scene.rounds.refresh(3.0)
        scene.clock.now += 2.9
        await scene.rounds.refresh(3.0)
        scene.clock.now += 0.1
        await scene.rounds.refresh(3.0)

    assert play(Scene(2), work) == {"replicas": 4, "gateway": 2}


def test_the_replicas_of_a_large_fleet_are_read_more_rarely_than_the_gateway() -> None:
    async def work(scene: Scene) -> None:
        for _ in range(4):
            await scene.rounds.refresh(1.0)
            scene.clock.now += 5.0

    replicas = 2 * LARGE
    asked = play(Scene(replicas), work)
    assert asked == {"replicas": 2 * replicas, "gateway": 4}


def test_only_so_many_replicas_are_asked_at_one_time() -> None:
    async def work(scene: Scene) -> None:
        await scene.rounds.refresh()

    scene = Scene(5 * AT_ONCE)
    assert play(scene, work)["replicas"] == 5 * AT_ONCE
    assert scene.most == AT_ONCE
