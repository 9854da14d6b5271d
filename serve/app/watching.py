"""Watching: a process that runs but no longer answers is killed, so that it is started anew.

Supervision sees a process that ends. One that hangs, or was stopped by a signal, keeps its share of
the connections and answers none of them. A process is only judged once it has answered in this
life: starting may take as long as it takes.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serve.app.asking import Line
from serve.processes import State, Supervised

_log = logging.getLogger("servegate.watching")
INTERVAL = 2.0  # seconds between two questions
SILENCES = 3  # unanswered questions in a row that are one too many
PATIENCE = 2.0  # seconds for one answer of a worker


@dataclass(frozen=True, slots=True)
class Heard:
    """What a question brought: the process that it reached, if any, and whether that is well."""

    pid: int | None = None
    is_well: bool = False


class Watchable(Protocol):
    """Whatever can be asked how it is."""

    async def ask(self) -> Heard:
        """Ask once; takes a bounded time and raises nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """A child of ours, and a question that it answers while it is well."""

    child: Supervised
    answers: Callable[[], Awaitable[bool]]

    async def ask(self) -> Heard:
        """A child that is being started, or was replaced meanwhile, is nobody yet."""
        pid = self.child.condition.pid
        if pid is None or self.child.condition.state is not State.RUNNING:
            return Heard()
        is_well = await self.answers()
        return Heard(pid, is_well) if pid == self.child.condition.pid else Heard()


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """A worker, which is a child of a child. The kernel says who listens on its socket."""

    path: Path
    patience: float = PATIENCE

    async def ask(self) -> Heard:
        """A worker whose socket nobody listens on is being started."""
        async with Line(self.path) as line:
            try:
                async with asyncio.timeout(self.patience):
                    answer = await line.get("/livez")
            except OSError:  # a timeout, too
                return Heard(line.listener)
            return Heard(line.listener, answer.status == 200)


class Watch:
    """Counts silences; `look` asks every process once."""

    def __init__(self, watched: Mapping[str, Watchable], kill: Callable[[int, int], None]) -> None:
        self._watched = watched
        self._kill = kill
        self._silent: Counter[int] = Counter()
        self._known: dict[str, int] = {}  # process ids that have answered

    def __repr__(self) -> str:
        return f"<Watch {sorted(self._watched)} silent={dict(self._silent)}>"

    async def look(self) -> None:
        """Ask all at once, and kill those that were silent too often."""
        await asyncio.gather(*(self._ask(name) for name in self._watched))

    async def _ask(self, name: str) -> None:
        heard = await self._watched[name].ask()
        if heard.pid is None:
            return
        if heard.is_well:
            if self._known.get(name) != heard.pid:
                _log.debug("%s (%d) answers and is watched", name, heard.pid)
            self._known[name] = heard.pid
            self._silent.pop(heard.pid, None)
        elif self._known.get(name) == heard.pid:
            self._silent[heard.pid] += 1
            if self._silent[heard.pid] >= SILENCES:
                _log.error("%s (%d) runs but does not answer: it is killed", name, heard.pid)
                del self._silent[heard.pid], self._known[name]
                self._kill(heard.pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def watching(watched: Mapping[str, Watchable]) -> AsyncIterator[None]:
    """Watch these processes inside the block."""
    watch = Watch(watched, _kill)

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
    """The pid is that of a child not yet reaped, or of one that listened a moment ago."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
