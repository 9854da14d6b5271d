"""The publisher: generations that rise, workers that wait, and changes that come into force."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from builders import Clock, snapshot, target, until, view

from serve.control.snapshots import GONE_AFTER, Publisher
from serve.control.storage.store import Store
from serve.core.snapshot import Snapshot


class Scene:
    """A publisher over a store on disk; `now` is what compiling gives."""

    def __init__(self, folder: Path) -> None:
        self.now = snapshot(view(target(1, "a")), generation=0)
        self.clock = Clock()
        self.store = Store(folder / "control.sqlite", clock=self.clock)
        self.store.migrate()
        self.knows = True
        self.publisher = Publisher(
            lambda: self.now, self.store, clock=self.clock, knows=lambda: self.knows
        )

    def change(self, version: int) -> None:
        self.now = snapshot(view(target(version, "a")), generation=0)

    async def ack(self, worker: str, generation: int) -> Snapshot | None:
        """The worker says what it serves and waits for nothing."""
        return await self.publisher.poll(worker, generation, 0)

    def polling(self, worker: str, generation: int) -> asyncio.Task[Snapshot | None]:
        return asyncio.create_task(self.publisher.poll(worker, generation, 60))


def play(*steps: Coroutine[Any, Any, Any]) -> list[Any]:
    async def all_in_turn() -> list[Any]:
        return [await step for step in steps]

    return asyncio.run(all_in_turn())


def test_the_first_snapshot_is_published_even_when_it_is_empty(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.now = Snapshot(0)
    assert play(scene.publisher.refresh()) == [1]


def test_the_same_content_keeps_its_generation(tmp_path: Path) -> None:
    publisher = Scene(tmp_path).publisher
    assert play(publisher.refresh(), publisher.refresh(), publisher.refresh()) == [1, 1, 1]


def test_a_change_gets_the_next_generation(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    play(scene.publisher.refresh())
    scene.change(2)
    assert play(scene.publisher.refresh()) == [2]
    assert scene.publisher.snapshot.models["m"].targets == {2: target(2, "a")}


def test_generations_go_on_rising_after_a_restart(tmp_path: Path) -> None:
    first = Scene(tmp_path)
    play(first.publisher.refresh())
    first.change(2)
    play(first.publisher.refresh())
    assert play(Scene(tmp_path).publisher.refresh()) == [3]


def test_generations_go_on_rising_while_the_store_does_not_answer(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    lost = Store(tmp_path / "gone" / "control.sqlite", clock=scene.clock)
    publisher = Publisher(lambda: scene.now, lost, clock=scene.clock)
    play(publisher.refresh())
    scene.change(2)
    assert play(publisher.refresh()) == [2]


def test_a_poll_is_answered_at_once_when_there_is_something_newer(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    _, got = play(scene.publisher.refresh(), scene.publisher.poll("w", 0, 60))
    assert got is scene.publisher.snapshot


def test_a_poll_waits_for_the_next_generation(tmp_path: Path) -> None:
    async def scenario() -> Snapshot | None:
        scene = Scene(tmp_path)
        await scene.publisher.refresh()
        polling = scene.polling("w", 1)
        await until(lambda: scene.publisher.workers != ())
        scene.change(2)
        await scene.publisher.refresh()
        return await polling

    got = asyncio.run(scenario())
    assert got is not None
    assert got.generation == 2


def test_a_poll_whose_time_is_up_gets_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert play(scene.publisher.refresh(), scene.publisher.poll("w", 1, 0.01)) == [1, None]


def test_a_worker_that_is_ahead_of_control_is_overtaken(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    _, got = play(scene.publisher.refresh(), scene.ack("w", 41))
    assert got.generation == 42
    assert got.same_content(scene.now)
    assert play(Scene(tmp_path).publisher.refresh()) == [43]


def test_nothing_is_published_before_the_replicas_have_been_looked_at(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.knows = False
    assert play(scene.publisher.refresh(), scene.ack("w", 0), scene.ack("w", 41)) == [0, None, None]
    scene.knows = True
    assert play(scene.publisher.refresh()) == [42]


def test_a_worker_that_is_ahead_is_overtaken_as_soon_as_control_knows(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.knows = False

    async def scenario() -> Snapshot | None:
        polling = scene.polling("w", 41)
        await until(lambda: scene.publisher.workers != ())
        scene.knows = True
        await scene.publisher.refresh()
        async with asyncio.timeout(1):
            return await polling

    got = asyncio.run(scenario())
    assert got is not None
    assert got.generation == 42


def test_a_control_plane_that_ends_sends_every_worker_home(tmp_path: Path) -> None:
    async def scenario() -> Snapshot | None:
        scene = Scene(tmp_path)
        await scene.publisher.refresh()
        polling = scene.polling("w", 1)
        await until(lambda: scene.publisher.workers != ())
        await scene.publisher.close()
        return await polling

    assert asyncio.run(scenario()) is None


def test_a_change_is_in_force_once_every_worker_has_said_so(tmp_path: Path) -> None:
    async def scenario() -> list[bool]:
        scene = Scene(tmp_path)
        await scene.publisher.refresh()
        await scene.ack("w0", 1)
        await scene.ack("w1", 1)
        scene.change(2)
        generation = await scene.publisher.refresh()
        waiting = asyncio.create_task(scene.publisher.in_force(generation, 60))
        seen = [waiting.done()]
        await scene.ack("w0", 2)
        seen.append(waiting.done())
        last = scene.polling("w1", 2)
        seen.append(await waiting)
        last.cancel()
        return seen

    assert asyncio.run(scenario()) == [False, False, True]


def test_a_change_is_not_in_force_while_a_worker_lags_behind(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert (
        play(
            scene.publisher.refresh(),
            scene.ack("w0", 1),
            scene.ack("w1", 0),
            scene.publisher.in_force(1, 0.01),
        )[-1]
        is False
    )


def test_without_workers_everything_is_in_force(tmp_path: Path) -> None:
    publisher = Scene(tmp_path).publisher
    assert play(publisher.refresh(), publisher.in_force(1, 0.01)) == [1, True]


def test_what_is_not_yet_published_is_not_in_force(tmp_path: Path) -> None:
    publisher = Scene(tmp_path).publisher
    assert play(publisher.refresh(), publisher.in_force(2, 0.01)) == [1, False]


def test_what_is_decided_while_nothing_may_be_published_holds_with_the_next_snapshot(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[int, list[bool], int]:
        scene = Scene(tmp_path)
        for _ in range(5):  # an earlier control plane has published these
            await scene.store.next_generation(1)
        scene.knows = False
        await scene.ack("w0", 5)
        promised = await scene.publisher.committed()
        held = [await scene.publisher.in_force(promised, 0.01)]
        scene.knows = True
        published = await scene.publisher.refresh()
        await scene.ack("w0", published)
        held.append(await scene.publisher.in_force(promised, 0.01))
        return promised, held, published

    promised, held, published = asyncio.run(scenario())
    assert held == [False, True]
    assert 5 < promised <= published


def test_what_is_decided_is_published_at_once_when_it_may_be(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    play(scene.publisher.refresh())
    scene.change(2)
    assert play(scene.publisher.committed()) == [2]
    assert scene.publisher.snapshot.generation == 2


def test_a_worker_that_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    play(scene.publisher.refresh(), scene.ack("w0", 0))
    scene.clock.now += GONE_AFTER
    assert scene.publisher.workers == ()
    assert play(scene.publisher.in_force(1, 0.01)) == [True]


def test_a_worker_that_waits_in_a_poll_has_not_gone(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        scene = Scene(tmp_path)
        await scene.publisher.refresh()
        polling = scene.polling("w0", 1)
        await until(lambda: scene.publisher.workers != ())
        scene.clock.now += 10 * GONE_AFTER
        names = [worker.name for worker in scene.publisher.workers]
        polling.cancel()
        return names

    assert asyncio.run(scenario()) == ["w0"]


def test_a_worker_that_polls_anew_before_its_old_poll_ends_has_not_gone(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        scene = Scene(tmp_path)
        await scene.publisher.refresh()
        old = scene.polling("w0", 1)
        await until(lambda: scene.publisher.workers != ())
        new = scene.polling("w0", 1)
        await asyncio.sleep(0)
        old.cancel()
        await asyncio.wait([old])
        scene.clock.now += 10 * GONE_AFTER
        names = [worker.name for worker in scene.publisher.workers]
        new.cancel()
        return names

    assert asyncio.run(scenario()) == ["w0"]
