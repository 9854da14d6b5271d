"""Waking from afar: a worker tells the control plane for which models calls wait.

At once when there is a new one, and again every few seconds as long as anybody waits, because a
control plane that has just begun knows nothing of it. A call never waits for this itself.
"""

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Callable, Iterable

from serve.app.internal_http import InternalConnection

AGAIN = 5.0  # seconds
PATIENCE = 2.0  # seconds for the control plane to answer
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0
_log = logging.getLogger("servegate.waking")


class WakeCaller:
    """One worker's. `models` gives those that are wanted now; `again` is in seconds."""

    def __init__(
        self,
        models: Callable[[], Iterable[str]],
        *,
        url: str,
        secret: str,
        again: float = AGAIN,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._models = models
        self._line = InternalConnection(url, trust=trust)
        self._headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
        self._again = again
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"<WakeCaller {self._line!r}>"

    def tell(self) -> None:
        """There is one more model that is wanted."""
        self._news.set()

    async def run(self) -> None:
        """Tell the control plane until cancelled."""
        pause, untold = FIRST_PAUSE, frozenset[str]()
        async with self._line:
            while True:
                self._news.clear()
                models = untold.union(self._models())
                if not models:
                    await self._news.wait()
                    continue
                try:
                    await self._call(sorted(models))
                except (OSError, ValueError) as error:  # a TimeoutError is an OSError
                    _log.info(
                        "cannot report waiting models to the control plane: %s",
                        error or type(error),
                    )
                    untold = models
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LAST_PAUSE)
                else:
                    pause, untold = FIRST_PAUSE, frozenset()
                    await asyncio.sleep(pause)  # calls that come and go may be many
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._again):
                            await self._news.wait()

    async def _call(self, models: list[str]) -> None:
        async with asyncio.timeout(PATIENCE):
            body = json.dumps({"models": models}).encode()
            answer = await self._line.post("/internal/waking", self._headers, body)
        self._line.close()  # the next time is seconds away, and it would be closed by then
        if answer.status != 204:
            raise ValueError(f"it responded with status {answer.status}")
