"""The sampler: one for all who watch, and only while somebody does.

It asks once a second, writes each sample down once, and gives the same bytes to everybody. It goes
on for a minute after the last one left, so that a page that is loaded again has its history, and
keeps ten minutes of it.

Those who watch: each gets every sample, or the newest ones when it cannot keep up.
"""

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from serve.control.live.samples import LiveSample, columns
from serve.core.errors import Unavailable

# --- those who watch ------------------------------------------------------------------------------


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


# --- the sampler ----------------------------------------------------------------------------------


PERIOD = 1.0  # seconds from one sample to the next
PAUSE = 0.5  # at least so long, or the rates are of no time at all
KEPT = 600.0  # seconds of history
LINGER = 60.0  # seconds that it goes on after the last one left
MOST_VIEWERS = 200
_log = logging.getLogger("servegate.live")


class Sampled(Protocol):
    """Who is asked for samples."""

    async def sample(self) -> LiveSample:
        """What is so now."""

    def forget(self) -> None:
        """The next sample is not compared with those before."""


class LiveSampler:
    """The newest ten minutes, and who watches."""

    def __init__(
        self,
        sources: Sampled,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._sleep = sleep
        self._kept: deque[tuple[float, bytes]] = deque()
        self._viewers: set[Viewer] = set()
        self._until = clock()
        self._wanted = asyncio.Event()
        self._count = 0  # samples since the start
        self._written: bytes | None = None  # the history, until there is more of it
        self._ended = False

    def __repr__(self) -> str:
        return f"<LiveSampler viewers={len(self._viewers)} samples={len(self._kept)}>"

    async def run(self) -> None:
        """Ask as long as somebody watches; when cancelled, everybody's stream ends."""
        try:
            while True:
                await self._wanted.wait()
                self._sources.forget()
                while self._is_watched:
                    begun = self._clock()
                    await self._ask()
                    await self._sleep(max(PAUSE, begun + PERIOD - self._clock()))
                self._wanted.clear()
        finally:
            self._ended = True
            for viewer in self._viewers:
                viewer.end()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Viewer]:
        """Inside, somebody gets every sample; `Unavailable` when too many watch already."""
        if len(self._viewers) >= MOST_VIEWERS:
            raise Unavailable(
                f"there are already {MOST_VIEWERS} viewers of the live data",
                why="each viewer uses a connection of the control plane",
                try_this="again later, or GET /api/live",
            )
        viewer = Viewer()
        if self._ended:
            viewer.end()
        self._viewers.add(viewer)
        self._wanted.set()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            self._linger()

    async def history(self) -> bytes:
        """The columns of the newest ten minutes, as JSON; whoever asks watches for a minute."""
        self._linger()
        self._wanted.set()
        self._drop_old()
        if self._written is None:
            kept, count = tuple(sample for _, sample in self._kept), self._count
            written = await asyncio.to_thread(_columns_of, kept)
            if count != self._count:
                return written  # which is not the newest any more
            self._written = written
        return self._written

    @property
    def _is_watched(self) -> bool:
        return bool(self._viewers) or self._clock() < self._until

    def _linger(self) -> None:
        self._until = self._clock() + LINGER

    async def _ask(self) -> None:
        try:
            sample = await self._sources.sample()
            written = _encode(sample.to_json())
        except Exception:  # whatever is wrong with a graph, the control plane goes on
            _log.exception("cannot sample the live data")
            return
        self._kept.append((self._clock(), written))
        self._count += 1
        self._written = None
        self._drop_old()
        for viewer in self._viewers:
            viewer.give(written)

    def _drop_old(self) -> None:
        while self._kept and self._kept[0][0] <= self._clock() - KEPT:
            self._kept.popleft()
            self._written = None


def _columns_of(kept: tuple[bytes, ...]) -> bytes:
    return _encode(columns([json.loads(sample) for sample in kept]))


def _encode(tree: Any) -> bytes:
    """On one line, in ASCII: names may hold what is no valid text."""
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
