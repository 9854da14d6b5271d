"""Watches the Triton of a trial: it is killed when it takes too much, and told when it has died.

Nobody who talks to it is interrupted: its connections break, and the reason is told here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from serve.core.errors import TrialFailed
from serve.processes import Child, Family

T = TypeVar("T")
_PAUSE = 0.05  # seconds between two looks
_SETTLING = 5.0  # seconds until the end of a process is told, after its connections broke


class QuarantineWatch:
    """`failure` is why the trial is over; None while it is not. `doing` says what goes on."""

    def __init__(
        self, child: Child, executor: Executor, *, last_words: Callable[[], str], limit: int
    ) -> None:
        self.failure: TrialFailed | None = None
        self.has_died = False  # by itself
        self.doing = "while starting"
        self._child = child
        self._executor = executor
        self._last_words = last_words
        self._limit = limit
        self._base: int | None = None
        self._family = Family(child.pid)
        self._told = asyncio.Event()

    def __repr__(self) -> str:
        return f"<QuarantineWatch {self._family!r} {self.doing} {self.failure or 'all is well'}>"

    async def begin(self, doing: str) -> int:
        """The limit counts from here; answers the bytes of memory that are taken already."""
        self.doing = doing
        self._base = await self.memory()
        return self._base

    async def memory(self) -> int:
        """Bytes that the Triton and its stubs take now."""
        return await self._aside(self._family.memory)

    async def settle(self) -> None:
        """Return when the failure is known, or when there seems to be none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLING):
                await self._told.wait()

    async def is_over(self) -> None:
        """Return when there is a failure."""
        await self._told.wait()

    async def run(self) -> None:
        """Look again and again, until there is a failure."""
        while self.failure is None:
            await asyncio.sleep(_PAUSE)
            if self._child.is_gone:
                ended = await self._child.wait()
                self.has_died = True
                self._fail(f"its Triton died {self.doing}", f"{ended}{self._last_words()}")
            elif await self._aside(self._is_too_large):
                self._fail(f"it used more than {_size(self._limit)} of memory {self.doing}")
                await self._child.stop(0)

    def _is_too_large(self) -> bool:
        return self._base is not None and self._family.exceeds(self._base + self._limit)

    def _fail(self, what: str, why: str = "") -> None:
        self.failure = TrialFailed(what, why=why)
        self._told.set()

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


@contextlib.asynccontextmanager
async def watching(
    child: Child, *, last_words: Callable[[], str], limit: int
) -> AsyncIterator[QuarantineWatch]:
    """A watch with a thread of its own; the child is killed at the end. `limit` in bytes."""
    with ThreadPoolExecutor(1, "quarantine") as executor:
        watch = QuarantineWatch(child, executor, last_words=last_words, limit=limit)
        task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            task.cancel()
            await child.stop(0)
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _size(limit: int) -> str:
    return f"{limit / (1 << 30):.1f} GiB" if limit >= 1 << 30 else f"{limit / (1 << 20):.4g} MiB"
