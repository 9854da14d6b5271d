"""The publisher: generations that rise, workers that wait, and changes that come into force."""

import asyncio
import json
from pathlib import Path

import pytest
from builders import Clock, snapshot, target, until, view
from ticking import Ticks

from serve.control.snapshots import GONE_AFTER, REST, Publisher
from serve.control.storage.store import Store
from serve.core.snapshot import Snapshot


class Scene:
    """A publisher over a store on disk, which compiles for `takes` seconds of its clock.

    `version` is what it finds then, and `built` are the versions that it found.
    """

    def __init__(self, folder: Path) -> None:
        self.version = 1
        self.built: list[int] = []
        self.takes = 0.0
        self.knows = True
        self.is_broken = False
        self.clock, self.ticks = Clock(), Ticks()
        self.store = Store(folder / "control.sqlite", clock=self.clock)
        self.store.migrate()
        self.publisher = Publisher(
            self.compile, self.store, clock=self.clock, knows=lambda: self.knows, sleep=self.ticks
        )

    def compile(self) -> Snapshot:
        if self.is_broken:
            raise RuntimeError("it cannot be compiled")
        self.built.append(self.version)
        self.clock.now += self.takes
        return snapshot(view(target(self.version, "a")), generation=0)

    @property
    def published(self) -> int:
        return max(self.publisher.snapshot.models["m"].targets)

    async def tell(self, version: int) -> int:
        """There is news; gives what is published when that is said to be done."""
        self.version = version
        await self.publisher.refresh()
        return self.published

    async def ack(self, worker: str, generation: int) -> Snapshot | None:
        """The worker says what it serves and waits for nothing."""
        return await self.publisher.poll(worker, generation, 0)

    async def polling(self, worker: str, generation: int) -> asyncio.Task[Snapshot | None]:
        """The worker waits in a poll."""
        task = asyncio.create_task(self.publisher.poll(worker, generation, 60))
        await until(lambda: self.publisher.workers != ())
        await asyncio.sleep(0)
        return task


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_the_first_snapshot_is_published_even_when_it_is_empty(scene: Scene) -> None:
    publisher = Publisher(lambda: Snapshot(0), scene.store, clock=scene.clock)
    assert await publisher.refresh() == 1


async def test_a_change_gets_the_next_generation_also_after_a_restart(
    scene: Scene, tmp_path: Path
) -> None:
    assert [await scene.publisher.refresh() for _ in range(3)] == [1, 1, 1]
    assert await scene.tell(2) == 2
    assert scene.publisher.snapshot.generation == 2
    assert scene.publisher.snapshot.models["m"].targets == {2: target(2, "a")}
    assert await Scene(tmp_path).publisher.refresh() == 3


async def test_generations_go_on_rising_while_the_store_does_not_answer(
    scene: Scene, tmp_path: Path
) -> None:
    lost = Store(tmp_path / "gone" / "control.sqlite", clock=scene.clock)
    publisher = Publisher(scene.compile, lost, clock=scene.clock)
    await publisher.refresh()
    scene.version = 2
    assert await publisher.refresh() == 2


async def test_a_poll_is_answered_at_once_when_there_is_something_newer(scene: Scene) -> None:
    await scene.publisher.refresh()
    assert await scene.publisher.poll("w", 0, 60) is scene.publisher.snapshot
    assert await scene.publisher.poll("w", 1, 0.01) is None  # its time is up


async def test_a_poll_waits_for_the_next_generation(scene: Scene) -> None:
    await scene.publisher.refresh()
    polling = await scene.polling("w", 1)
    await scene.tell(2)
    got = await polling
    assert got is not None and got.generation == 2


async def test_a_worker_that_is_ahead_of_control_is_overtaken(scene: Scene, tmp_path: Path) -> None:
    await scene.publisher.refresh()
    got = await scene.ack("w", 41)
    assert got is not None and got.generation == 42
    assert got.same_content(scene.compile())
    assert await Scene(tmp_path).publisher.refresh() == 43


async def test_nothing_is_published_before_the_replicas_have_been_looked_at(scene: Scene) -> None:
    scene.knows = False
    assert await scene.publisher.refresh() == 0
    assert (await scene.ack("w", 0), await scene.ack("w", 41)) == (None, None)
    polling = await scene.polling("w", 41)
    scene.knows = True
    assert await scene.publisher.refresh() == 42
    async with asyncio.timeout(1):
        got = await polling
    assert got is not None and got.generation == 42


async def test_a_control_plane_that_ends_sends_every_worker_home(scene: Scene) -> None:
    await scene.publisher.refresh()
    polling = await scene.polling("w", 1)
    await scene.publisher.close()
    assert await polling is None


async def test_a_change_is_in_force_once_every_worker_has_said_so(scene: Scene) -> None:
    generation = await scene.publisher.refresh()
    assert await scene.publisher.in_force(generation, 0.01)  # there are no workers
    assert not await scene.publisher.in_force(generation + 1, 0.01)  # it is not yet published
    await scene.ack("w0", 1)
    await scene.ack("w1", 1)
    await scene.tell(2)
    waiting = asyncio.create_task(scene.publisher.in_force(2, 60))
    await scene.ack("w0", 2)
    assert not waiting.done()
    assert not await scene.publisher.in_force(2, 0.01)
    last = await scene.polling("w1", 2)
    assert await waiting
    last.cancel()


async def test_what_is_decided_while_nothing_may_be_published_holds_with_the_next_snapshot(
    scene: Scene,
) -> None:
    for _ in range(5):  # an earlier control plane has published these
        await scene.store.next_generation(1)
    scene.knows = False
    await scene.ack("w0", 5)
    promised = await scene.publisher.committed()
    assert not await scene.publisher.in_force(promised, 0.01)
    scene.knows = True
    published = await scene.publisher.refresh()
    await scene.ack("w0", published)
    assert await scene.publisher.in_force(promised, 0.01)
    assert 5 < promised <= published


async def test_what_is_decided_is_published_at_once_when_it_may_be(scene: Scene) -> None:
    await scene.publisher.refresh()
    scene.version = 2
    assert await scene.publisher.committed() == 2
    assert (scene.publisher.snapshot.generation, scene.published) == (2, 2)


async def test_a_worker_that_has_gone_is_not_waited_for(scene: Scene) -> None:
    await scene.publisher.refresh()
    await scene.ack("w0", 0)
    scene.clock.now += GONE_AFTER
    assert scene.publisher.workers == ()
    assert await scene.publisher.in_force(1, 0.01)


async def test_a_worker_that_waits_in_a_poll_has_not_gone(scene: Scene) -> None:
    await scene.publisher.refresh()
    old = await scene.polling("w0", 1)
    scene.clock.now += 10 * GONE_AFTER
    assert [worker.name for worker in scene.publisher.workers] == ["w0"]
    new = await scene.polling("w0", 1)  # it polls anew before its old poll ends
    old.cancel()
    await asyncio.wait([old])
    scene.clock.now += 10 * GONE_AFTER
    assert [worker.name for worker in scene.publisher.workers] == ["w0"]
    new.cancel()


# --- when much is told at once -------------------------------------------------------------------


async def test_what_comes_while_a_snapshot_is_compiled_is_in_the_next(scene: Scene) -> None:
    published = await asyncio.gather(*(scene.tell(version) for version in range(1, 101)))
    assert scene.built == [1, 100]
    assert published[0] >= 1 and set(published[1:]) == {100}


async def test_nobody_hears_that_news_are_published_before_they_are(scene: Scene) -> None:
    async def one(version: int) -> None:
        await asyncio.sleep(version % 7 / 1000)
        before = scene.version = max(scene.version, version)
        await scene.publisher.refresh()
        assert scene.published >= before

    await asyncio.gather(*(one(version) for version in range(1, 60)))
    assert len(scene.built) < 59


async def test_one_that_is_cancelled_keeps_nobody_from_being_published(scene: Scene) -> None:
    first, second, third = (asyncio.create_task(scene.tell(one)) for one in (1, 2, 3))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    assert await third == 3


async def test_a_snapshot_that_could_not_be_compiled_is_compiled_by_the_next_who_asks(
    scene: Scene,
) -> None:
    scene.is_broken = True
    with pytest.raises(RuntimeError):
        await scene.tell(1)
    scene.is_broken = False
    assert await scene.tell(2) == 2


async def test_after_a_snapshot_that_took_long_it_rests_for_a_multiple_of_that(
    scene: Scene,
) -> None:
    scene.takes = 0.5
    await scene.tell(1)
    telling = asyncio.create_task(scene.tell(2))
    await scene.ticks.asked()
    assert scene.ticks.lengths == [pytest.approx(REST * 0.5)]
    assert scene.built == [1]
    scene.clock.now += REST * 0.5
    scene.ticks.tick()
    assert await telling == 2
    scene.clock.now += REST * 0.5
    assert await scene.tell(3) == 3  # what comes after that time is published at once
    assert len(scene.ticks.lengths) == 1


async def test_a_snapshot_is_written_once_for_all_workers(scene: Scene) -> None:
    publisher = scene.publisher
    for version in (1, 2):
        await scene.tell(version)
        assert publisher.written is publisher.written
        assert Snapshot.from_json(json.loads(publisher.written)) == publisher.snapshot
