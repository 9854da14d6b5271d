"""One who watches: every sample in time, the newest ones when late, and an end."""

import asyncio

from serve.control.live.viewers import WAITING, Viewer


def test_samples_come_in_their_order() -> None:
    async def scenario():
        viewer = Viewer()
        viewer.give(b"1")
        viewer.give(b"2")
        return [await viewer.next(), await viewer.next()]

    assert asyncio.run(scenario()) == [b"1", b"2"]


def test_who_is_slow_loses_the_oldest() -> None:
    async def scenario():
        viewer = Viewer()
        for number in range(100):
            viewer.give(b"%d" % number)
        viewer.end()
        found = []
        while (sample := await viewer.next()) is not None:
            found.append(int(sample))
        return found

    assert asyncio.run(scenario()) == list(range(100 - WAITING, 100))


def test_who_waits_gets_the_next_one_or_the_end() -> None:
    async def scenario():
        viewer = Viewer()
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0)
        viewer.give(b"1")
        first = await waiting
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0)
        viewer.end()
        return first, await waiting

    assert asyncio.run(scenario()) == (b"1", None)
