"""One who watches: every sample in time, the newest ones when late, and an end."""

import asyncio

from loops import in_loop

from serve.control.live.sampler import WAITING, Viewer


@in_loop
async def test_samples_come_in_their_order_and_who_is_slow_loses_the_oldest() -> None:
    viewer, found = Viewer(), []
    for number in range(100):
        viewer.give(b"%d" % number)
    viewer.end()
    while (sample := await viewer.next()) is not None:
        found.append(int(sample))
    assert found == list(range(100 - WAITING, 100))


@in_loop
async def test_who_waits_gets_the_next_one_or_the_end() -> None:
    viewer = Viewer()
    for act, expected in ((lambda: viewer.give(b"1"), b"1"), (viewer.end, None)):
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0)
        act()
        assert await waiting == expected
