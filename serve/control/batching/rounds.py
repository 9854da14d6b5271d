"""The rounds: replicas and gateway are read every 15 seconds, and when somebody wants to see.

Until every replica has been read once they come faster: what is called before does not count.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from serve.control.batching.latencies import Latencies
from serve.control.batching.observing import Observer
from serve.control.live.sources import PATIENCE, Metered
from serve.core.errors import ServegateError

PERIOD = 15.0  # seconds from one round to the next
PAUSE = 1.0  # at least so long
FRESH = 3.0  # seconds for which what was read is new enough for everybody
_log = logging.getLogger("servegate.batching")


class Rounds:
    """One round after the other, never two at a time. `clock`: monotonic seconds."""

    def __init__(
        self,
        observer: Observer,
        latencies: Latencies,
        gateway: Metered,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._observer = observer
        self._latencies = latencies
        self._gateway = gateway
        self._clock = clock
        self._sleep = sleep
        self._reading = asyncio.Lock()
        self._read_at: float | None = None

    def __repr__(self) -> str:
        return f"<Rounds of {self._observer}>"

    async def run(self, after: Callable[[], None]) -> None:
        """Go on and on, and call `after` each time; whatever goes wrong, the next one comes."""
        while True:
            begun, period = self._clock(), PERIOD
            try:
                await self.refresh(PAUSE)
                after()
                period = PERIOD if self._observer.has_begun else PAUSE
            except Exception:
                _log.exception("batches could not be looked at")
            await self._sleep(max(PAUSE, begun + period - self._clock()))

    async def refresh(self, age: float = FRESH) -> None:
        """Read everybody, unless that was done within so many seconds."""
        async with self._reading:
            if self._read_at is None or self._clock() - self._read_at >= age:
                await asyncio.gather(self._observer.observe(), self._read_gateway())
                self._read_at = self._clock()

    async def _read_gateway(self) -> None:
        """Its own histograms; what it does not tell is in the next round."""
        try:
            async with asyncio.timeout(PATIENCE):
                text = await self._gateway.metrics()
            self._latencies.tell(text, self._clock())
        except (ServegateError, OSError, ValueError, KeyError) as error:
            _log.debug("the gateway tells no metrics: %s", error or type(error))
