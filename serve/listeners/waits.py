"""Waiting for a pool to wake or a version to be loaded, for listeners whose calls are tasks.

Those whose calls are no tasks are `Waiter`s themselves: see `proxy/waiting_calls.py`.
"""

import asyncio

from serve.core.calls import Call
from serve.core.errors import NotLoaded, ServegateError
from serve.proxy.attempts import Attempt
from serve.proxy.gateway import Gateway


async def until_awake(gateway: Gateway, call: Call) -> Attempt:
    """The attempt of a call that `begin` has refused with `Asleep`, once there is a replica.

    Whatever comes instead is raised, and was counted: `Asleep` when the pool does not wake in time.
    """
    sleeper = _Sleeper()
    return await _coming(sleeper, gateway.wait(call, sleeper))


async def until_loaded(gateway: Gateway, attempt: Attempt, error: NotLoaded) -> Attempt:
    """The next attempt of a call whose attempt has ended with `NotLoaded`; or the error."""
    sleeper = _Sleeper()
    return await _coming(sleeper, gateway.wait_loaded(attempt, sleeper, error))


async def _coming(sleeper: "_Sleeper", waiting: Attempt) -> Attempt:
    try:
        return await sleeper.coming
    except asyncio.CancelledError:
        waiting.left()
        sleeper.leave()
        raise


class _Sleeper:
    """A `Waiter` for one task."""

    def __init__(self) -> None:
        self.coming: asyncio.Future[Attempt] = asyncio.get_running_loop().create_future()

    def on_awake(self, attempt: Attempt) -> None:
        self.coming.set_result(attempt)

    def on_asleep(self, error: ServegateError) -> None:
        self.coming.set_exception(error)

    def on_fault(self, error: Exception) -> None:
        if not self.coming.done():
            self.coming.set_exception(error)

    def leave(self) -> None:
        """The task ends although an attempt may have come just now."""
        coming = self.coming
        if coming.done() and not coming.cancelled() and coming.exception() is None:
            coming.result().left()
