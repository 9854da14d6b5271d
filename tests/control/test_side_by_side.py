"""Work side by side: few at a time, one error for all, and cancellation that is not lost."""

import asyncio

import pytest

from serve.control.deliveries.side_by_side import side_by_side
from serve.core.errors import Unavailable


async def test_no_more_than_a_few_run_at_a_time_and_all_are_done() -> None:
    running: list[int] = []
    done, most = [], []

    async def work(number: int) -> None:
        running.append(number)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)
        done.append(number)

    await side_by_side(work, range(7), at_a_time=3)
    assert sorted(done) == list(range(7)) and max(most) == 3


async def test_the_first_error_is_raised_as_it_is_and_ends_the_others() -> None:
    ended = []

    async def work(number: int) -> None:
        if number == 1:
            raise Unavailable("gone")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(Unavailable, match="gone"):
        await side_by_side(work, range(3), at_a_time=3)
    assert sorted(ended) == [0, 2]


async def test_who_is_cancelled_while_a_piece_fails_is_cancelled() -> None:
    failing = asyncio.Event()

    async def work(number: int) -> None:
        await failing.wait()
        raise Unavailable("gone")

    task = asyncio.create_task(side_by_side(work, [1], at_a_time=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    failing.set()
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
