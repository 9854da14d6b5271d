"""Those who watch: each gets every sample, or the newest ones when it cannot keep up."""

import asyncio
from collections import deque

WAITING = 4  # samples that wait for a viewer


class Viewer:
    """One who watches. What it does not fetch in time is lost, the oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque(maxlen=WAITING)
        self._news = asyncio.Event()
        self._ended = False

    def __repr__(self) -> str:
        return f"<Viewer waiting={len(self._waiting)}{' ended' if self._ended else ''}>"

    def give(self, sample: bytes) -> None:
        """One more sample."""
        self._waiting.append(sample)
        self._news.set()

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._news.set()

    async def next(self) -> bytes | None:
        """The oldest sample that waits, as soon as there is one; None when there are no more."""
        while not self._waiting:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()
