"""Tasks that wait for a pool to wake."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from builders import DataPlane, call, snapshot, target, view

from serve.core.errors import Asleep
from serve.listeners.waits import until_awake
from serve.proxy.attempts import Attempt

ASLEEP = snapshot(view(asleep=True))
AWAKE = snapshot(view(target(1, "a")))


def after(happens: Callable[[DataPlane, "asyncio.Task[Attempt]"], None]) -> DataPlane:
    """A data plane on which this happens while a task waits, which is then over."""
    plane = DataPlane(ASLEEP)

    async def scenario() -> None:
        task = asyncio.create_task(until_awake(plane.gateway, call()))
        await asyncio.sleep(0)
        assert plane.waking.waiting == {"m": 1}
        happens(plane, task)
        with contextlib.suppress(asyncio.CancelledError):
            (await task).answered(200, good=True)

    try:
        asyncio.run(scenario())
    finally:
        assert plane.waking.waiting == {} and plane.loads.total == 0
    return plane


def test_a_task_goes_on_with_an_attempt() -> None:
    plane = after(lambda plane, _: plane.wake(AWAKE))
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}
    assert plane.count("servegate_calls_total", **labels, verb="infer", code="200") == 1


def test_a_task_whose_caller_leaves_is_forgotten_even_as_its_attempt_comes() -> None:
    def wake(plane: DataPlane, task: "asyncio.Task[Attempt]") -> None:
        plane.wake(AWAKE)
        assert plane.loads.total == 1
        task.cancel()

    after(wake)
    after(lambda _, task: task.cancel() and None)


def test_a_task_whose_pool_does_not_wake_is_told_so() -> None:
    with pytest.raises(Asleep, match="this worker is stopping"):
        after(lambda plane, _: plane.waking.close())
