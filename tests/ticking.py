"""A pause that ends when a test says so."""

import asyncio


class Ticks:
    """Stands for `asyncio.sleep`: remembers how long each pause was to be, ends it at `tick`."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self._asked = asyncio.Event()
        self._tick = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.lengths.append(seconds)
        self._asked.set()
        await self._tick.wait()

    async def asked(self) -> None:
        """Wait until somebody pauses."""
        async with asyncio.timeout(20):
            await self._asked.wait()

    async def asked_times(self, count: int) -> None:
        """Wait until there were so many pauses."""
        async with asyncio.timeout(20):
            while len(self.lengths) < count:  # noqa: ASYNC110 - another loop sets it
                await asyncio.sleep(0)

    def tick(self) -> None:
        """End the pause; the next one is another."""
        self._tick.set()
        self._tick, self._asked = asyncio.Event(), asyncio.Event()
