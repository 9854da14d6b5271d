"""The rounds: replicas and gateway are read every 15 seconds, and when somebody wants to see.

Until every replica has been read once they come faster: what is called before does not count. Who
decides how many replicas there should be wants to see every five seconds (`control/scaling`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import BatchingObserver
from serve.control.live.sources import Metered
from serve.core.errors import ServegateError

PERIOD = 15.0  # seconds from one round to the next
PAUSE = 1.0  # at least so long
FRESH = 3.0  # seconds for which what was read is new enough for everybody
_PATIENCE = 4.0  # seconds; the gateway itself waits up to 2 s for a worker that does not answer
_log = logging.getLogger("servegate.batching")


class Hears(Protocol):
    """Who is told what the gateway's metrics say."""

    def tell(self, text: str, at: float) -> None:
        """At a time, by the rounds' clock; `ValueError` or `KeyError` for what is no such text."""


class Rounds:
    """One round after the other, never two at a time. `clock`: monotonic seconds.

    The gateway's metrics are told to `latencies`, and to who is named by `also`.
    """

    def __init__(
        self,
        observer: BatchingObserver,
        latencies: Latencies,
        gateway: Metered,
        *,
        clock: Callable[[], float],
        also: Hears | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._observer = observer
        self._gateway = gateway
        self._clock = clock
        self._hearing: tuple[Hears, ...] = (latencies, *([also] if also else ()))
        self._sleep = sleep
        self._reading = asyncio.Lock()
        self._read_at: float | None = None
        self._observed_at: float | None = None  # the replicas

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
                _log.exception("the batching statistics could not be read")
            await self._sleep(max(PAUSE, begun + period - self._clock()))

    async def refresh(self, age: float = FRESH) -> None:
        """Read everybody, unless that was done within so many seconds.

        The replicas of a large fleet are read more rarely than the gateway.
        """
        async with self._reading:
            if self._read_at is not None and self._clock() - self._read_at < age:
                return
            if self._observed_at is None or (
                self._clock() - self._observed_at >= self._observer.pause
            ):
                await asyncio.gather(self._observer.observe(), self._read_gateway())
                self._observed_at = self._clock()
            else:
                await self._read_gateway()
            self._read_at = self._clock()

    async def _read_gateway(self) -> None:
        """Its own histograms; what it does not tell is in the next round."""
        try:
            async with asyncio.timeout(_PATIENCE):
                text = await self._gateway.metrics()
            at = self._clock()
            for one in self._hearing:
                one.tell(text, at)
        except (ServegateError, OSError, ValueError, KeyError) as error:
            _log.debug("the gateway returns no metrics: %s", error or type(error))
