"""Watching: a child that runs but no longer answers is killed, so that it is started anew.

Supervision sees a process that ends. One that hangs, or was stopped by a signal, keeps its share of
the connections and answers none of them. A child is only judged once it has answered in this life:
starting may take as long as it takes.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from serve.processes import State, Supervised

_log = logging.getLogger("servegate.watching")
INTERVAL = 2.0  # seconds between two questions
SILENCES = 3  # unanswered questions in a row that are one too many


@dataclass(frozen=True, slots=True)
class Watched:
    """A child, and a question that it answers while it is well."""

    child: Supervised
    answers: Callable[[], Awaitable[bool]]


class Watch:
    """Counts silences; `look` asks every child once."""

    def __init__(self, children: Mapping[str, Watched], kill: Callable[[int, int], None]) -> None:
        self._children = children
        self._kill = kill
        self._silent: Counter[int] = Counter()
        self._known: set[int] = set()  # process ids that have answered

    def __repr__(self) -> str:
        return f"<Watch {sorted(self._children)} silent={dict(self._silent)}>"

    async def look(self) -> None:
        """Ask all at once, and kill those that were silent too often."""
        await asyncio.gather(*(self._ask(name) for name in self._children))

    async def _ask(self, name: str) -> None:
        watched = self._children[name]
        pid = watched.child.condition.pid
        if pid is None or watched.child.condition.state is not State.RUNNING:
            return
        if await watched.answers():
            if pid not in self._known:
                _log.debug("%s (%d) answers and is watched", name, pid)
            self._known.add(pid)
            self._silent.pop(pid, None)
        elif pid in self._known and pid == watched.child.condition.pid:
            self._silent[pid] += 1
            if self._silent[pid] >= SILENCES:
                _log.error("%s (%d) runs but does not answer: it is killed", name, pid)
                self._silent.pop(pid)
                self._known.discard(pid)
                self._kill(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def watching(children: Mapping[str, Watched]) -> AsyncIterator[None]:
    """Watch the children inside the block."""
    watch = Watch(children, _kill)

    async def for_ever() -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await watch.look()

    task = asyncio.create_task(for_ever())
    try:
        yield
    finally:
        task.cancel()


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
