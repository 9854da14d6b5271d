"""The publisher when much is told at once: what is shared, written once, and when it rests."""

import asyncio
import json
from pathlib import Path

import pytest
from builders import Clock, snapshot, target, view
from ticking import Ticks

from serve.control.snapshots import REST, Publisher
from serve.control.storage.store import Store
from serve.core.snapshot import Snapshot


class Scene:
    """A publisher that compiles for `takes` seconds of its clock; `version` is what it finds."""

    def __init__(self, folder: Path) -> None:
        self.version = 1
        self.built: list[int] = []
        self.takes = 0.0
        self.is_broken = False
        self.clock, self.ticks = Clock(), Ticks()
        store = Store(folder / "control.sqlite", clock=self.clock)
        store.migrate()
        self.publisher = Publisher(self._build, store, clock=self.clock, sleep=self.ticks)

    def _build(self) -> Snapshot:
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


async def test_what_comes_while_a_snapshot_is_compiled_is_in_the_next(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = await asyncio.gather(*(scene.tell(version) for version in range(1, 101)))
    assert scene.built == [1, 100]
    assert published[0] >= 1 and set(published[1:]) == {100}


async def test_nobody_hears_that_news_are_published_before_they_are(tmp_path: Path) -> None:
    async def one(scene: Scene, version: int) -> None:
        await asyncio.sleep(version % 7 / 1000)
        before = scene.version = max(scene.version, version)
        await scene.publisher.refresh()
        assert scene.published >= before

    scene = Scene(tmp_path)
    await asyncio.gather(*(one(scene, version) for version in range(1, 60)))
    assert len(scene.built) < 59


async def test_one_that_is_cancelled_keeps_nobody_from_being_published(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    first, second, third = (asyncio.create_task(scene.tell(one)) for one in (1, 2, 3))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    assert await third == 3


async def test_a_snapshot_that_could_not_be_compiled_is_compiled_by_the_next_who_asks(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    scene.is_broken = True
    with pytest.raises(RuntimeError):
        await scene.tell(1)
    scene.is_broken = False
    assert await scene.tell(2) == 2


async def test_after_a_snapshot_that_took_long_it_rests_for_a_multiple_of_that(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    scene.takes = 0.5
    await scene.tell(1)
    telling = asyncio.create_task(scene.tell(2))
    await scene.ticks.asked()
    assert scene.ticks.lengths == [pytest.approx(REST * 0.5)]
    assert scene.built == [1]
    scene.clock.now += REST * 0.5
    scene.ticks.tick()
    assert await telling == 2


async def test_what_comes_after_that_time_is_published_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.takes = 0.5
    await scene.tell(1)
    scene.clock.now += REST * 0.5
    assert await scene.tell(2) == 2
    assert scene.ticks.lengths == []


async def test_a_snapshot_is_written_once_for_all_workers(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.tell(1)
    publisher = scene.publisher
    assert publisher.written is publisher.written
    assert Snapshot.from_json(json.loads(publisher.written)) == publisher.snapshot
    await scene.tell(2)
    assert Snapshot.from_json(json.loads(publisher.written)) == publisher.snapshot
