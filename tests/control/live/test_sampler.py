"""The sampler: one for all, while somebody watches and a minute longer."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from builders import Clock, until
from control.live.watched import Scene
from ticking import Ticks

from serve.control.live.sampler import KEPT, LINGER, MOST_VIEWERS, WAITING, LiveSampler, Viewer
from serve.core.errors import Unavailable


class Watched:
    """A sampler of a scripted fleet, whose seconds pass when a test says so."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.clock = self.scene.clock
        self.ticks = Ticks()
        self.live = LiveSampler(self.scene.sources, clock=self.clock, sleep=self.ticks)

    @property
    def asked(self) -> int:
        return self.scene.gateway.asked

    async def second(self, seconds: float = 1.0) -> None:
        """One passes, and what it brings is there."""
        await self.ticks.asked()
        count = len(self.ticks.lengths)
        self.clock.now += seconds
        self.scene.wall.now += seconds
        self.ticks.tick()
        if self.live._is_watched:
            await self.ticks.asked_times(count + 1)
        else:
            await settled()

    async def history(self):
        return json.loads(await self.live.history())


async def settled() -> None:
    """Everybody has done what there is to do now."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    """A sampler that runs."""
    watched = Watched()
    watched.running = asyncio.create_task(watched.live.run())
    try:
        yield watched
    finally:
        watched.running.cancel()
        await asyncio.wait([watched.running])


async def test_twenty_viewers_share_one_sampler_and_the_same_bytes(watched: Watched) -> None:
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(watched.live.watching()) for _ in range(20)]
        for _ in range(5):
            await watched.second()
        asked, samples = watched.asked, [await viewer.next() for viewer in viewers]
    assert asked == 6  # one at once, and one after each second
    assert len({id(sample) for sample in samples}) == 1


async def test_a_page_that_is_loaded_again_has_its_history(watched: Watched) -> None:
    with watched.live.watching():
        await watched.second()
    await watched.second()
    with watched.live.watching():
        await watched.second()
        came = await watched.history()
    assert came["seconds"] == [1_700_000_000.0 + second for second in range(4)]


async def test_nobody_is_asked_while_nobody_watches_or_has_watched_for_a_minute(
    watched: Watched,
) -> None:
    await settled()
    assert watched.asked == 0
    with watched.live.watching():
        await watched.second()
    await watched.second(LINGER - 1)
    goes_on = watched.asked
    await watched.second()
    assert (goes_on, watched.asked) == (3, 3)


async def test_who_comes_after_a_pause_gets_rates_of_the_present_only(watched: Watched) -> None:
    with watched.live.watching():
        await watched.second()
    await watched.second(LINGER)
    watched.clock.now += 120
    with watched.live.watching():
        await watched.second()
        came = await watched.history()
    assert came["gateway"]["calls"] == [None, 0.0, None, 0.0]


async def test_whoever_asks_for_the_history_watches_for_a_minute(watched: Watched) -> None:
    first = await watched.history()
    await watched.ticks.asked()
    second = await watched.history()
    assert (len(first["seconds"]), len(second["seconds"])) == (0, 1)


async def test_ten_minutes_are_kept(watched: Watched) -> None:
    with watched.live.watching():
        for _ in range(int(KEPT) + 20):
            await watched.second()
        came = await watched.history()
        assert await watched.live.history() is await watched.live.history()  # for all who ask
    assert len(came["seconds"]) == int(KEPT)


async def test_a_fault_costs_one_second_of_history_and_no_more(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with watched.live.watching():
        await watched.second()
        told = watched.scene.told
        watched.scene.told = None  # which has no get()
        await watched.second()
        watched.scene.told = told
        await watched.second()
        came = await watched.history()
    assert len(came["seconds"]) == 3
    assert "cannot sample the live data" in caplog.text


def test_too_many_viewers_are_refused_and_a_place_becomes_free() -> None:
    live = LiveSampler(Scene().sources, clock=Clock())
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_VIEWERS):
            stack.enter_context(live.watching())
        with pytest.raises(Unavailable, match="already 200 viewers"):
            stack.enter_context(live.watching())
    with live.watching():
        pass


async def test_when_the_control_plane_ends_so_does_every_stream(watched: Watched) -> None:
    with watched.live.watching() as early:
        await until(lambda: watched.asked > 0)
        await early.next()
        watched.running.cancel()
        await asyncio.wait([watched.running])
        with watched.live.watching() as late:
            assert (await early.next(), await late.next()) == (None, None)


async def test_samples_come_in_their_order_and_who_is_slow_loses_the_oldest() -> None:
    viewer, found = Viewer(), []
    for number in range(100):
        viewer.give(b"%d" % number)
    viewer.end()
    while (sample := await viewer.next()) is not None:
        found.append(int(sample))
    assert found == list(range(100 - WAITING, 100))


async def test_who_waits_gets_the_next_one_or_the_end() -> None:
    viewer = Viewer()
    for act, expected in ((lambda: viewer.give(b"1"), b"1"), (viewer.end, None)):
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0)
        act()
        assert await waiting == expected
