"""Side by side: many small pieces of work, a few at a time, which fail and end as one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def side_by_side(
    work: Callable[[T], Awaitable[None]], things: Iterable[T], *, at_a_time: int
) -> None:
    """Do the work for each thing; the first error ends what still runs, and is raised as it is.

    No TaskGroup: before Python 3.13, when a piece fails while the caller is cancelled, it tells of
    the failure only, and a caller that tries again after failures would never end.
    """
    turns = asyncio.Semaphore(at_a_time)

    async def one(thing: T) -> None:
        async with turns:
            await work(thing)

    tasks = [asyncio.create_task(one(thing)) for thing in things]
    if not tasks:
        return
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
