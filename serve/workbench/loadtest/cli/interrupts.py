"""Ctrl-C in a load test: the first one ends the run and keeps its report, a second one leaves."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from serve.cli.output import say

Result = TypeVar("Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPED = "stopped; no report was written"


@dataclass(slots=True)
class Stopping:
    """Whether a run should end early. `event` is what the run itself waits for."""

    event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked for it."""
        return self.event.is_set()


def until_stopped(work: Callable[[Stopping], Coroutine[Any, Any, Result]]) -> Result:
    """Do the work, in the main thread. A second signal cancels it: `KeyboardInterrupt`.

    What is then still done is putting back what a scenario has changed; a third one ends that, too.
    """
    cut = False

    async def main() -> Result:
        stopping = Stopping()
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def take() -> None:
            nonlocal cut
            if not stopping.is_asked:
                stopping.event.set()
                say("stopping the run and writing its report; press Ctrl-C again to exit at once")
            elif task is not None:
                cut = True
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, take)
        try:
            return await work(stopping)
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if not cut:
            raise
        raise KeyboardInterrupt from None
