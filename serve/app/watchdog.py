"""Watching: a process that runs but no longer answers is killed, so that it is started anew.

Supervision sees a process that ends. One that hangs, or was stopped by a signal, keeps its share of
the connections and answers none of them. A process is only judged once it has answered in this
life: starting may take as long as it takes.

A process under load may be too busy to answer in time, and killing it would lose its calls. Its CPU
time tells the two apart:

    silent, and uses no CPU time        3 times in a row, about 12 s     stopped, or deadlocked
    silent, and uses CPU time          15 times in a row, about 60 s     an endless loop
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serve.app.internal_http import InternalConnection
from serve.processes import Supervised, SupervisedState, cpu_seconds

_log = logging.getLogger("servegate.watching")
INTERVAL = 2.0  # seconds between two questions
SILENCES = 3  # unanswered questions in a row that are too many without CPU time between them
BUSY_SILENCES = 15  # that are too many in any case
BUSY = 0.01  # seconds of CPU time between two questions that a stopped process does not use
PATIENCE = 2.0  # seconds for one answer of a worker


@dataclass(frozen=True, slots=True)
class WatchdogAnswer:
    """What a question brought: the process that it reached, if any, and whether that is well."""

    pid: int | None = None
    is_well: bool = False


class Watchable(Protocol):
    """Whatever can be asked how it is."""

    async def ask(self) -> WatchdogAnswer:
        """Ask once; takes a bounded time and raises nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """A child of ours, and a question that it answers while it is well."""

    child: Supervised
    answers: Callable[[], Awaitable[bool]]

    async def ask(self) -> WatchdogAnswer:
        """A child that is being started, or was replaced meanwhile, is nobody yet."""
        pid = self.child.condition.pid
        if pid is None or self.child.condition.state is not SupervisedState.RUNNING:
            return WatchdogAnswer()
        is_well = await self.answers()
        return WatchdogAnswer(pid, is_well) if pid == self.child.condition.pid else WatchdogAnswer()


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """A worker, which is a child of a child. The kernel says who listens on its socket."""

    path: Path
    patience: float = PATIENCE

    async def ask(self) -> WatchdogAnswer:
        """A worker whose socket nobody listens on is being started."""
        async with InternalConnection(self.path) as line:
            try:
                async with asyncio.timeout(self.patience):
                    answer = await line.get("/livez")
            except OSError:  # a timeout, too
                return WatchdogAnswer(line.listener)
            return WatchdogAnswer(line.listener, answer.status == 200)


@dataclass(slots=True)
class Pulse:
    """A process that has answered, and its silences in a row since then."""

    pid: int
    used: float  # seconds of CPU time at the last look
    silent: int = 0
    idle: int = 0  # how many of the last silences were without CPU time

    def answered(self, used: float) -> None:
        """It is well."""
        self.used, self.silent, self.idle = used, 0, 0

    def was_silent(self, used: float) -> str:
        """One more silence: why it is to be killed, empty while it is not."""
        self.silent += 1
        self.idle = 0 if used - self.used >= BUSY else self.idle + 1
        self.used = used
        if self.idle >= SILENCES:
            return "hangs: it does not respond and uses no CPU time"
        if self.silent >= BUSY_SILENCES:
            return "is busy and has not responded for too long"
        return ""


class Watchdog:
    """Counts silences; `look` asks every process once. `used` gives the CPU time of one."""

    def __init__(
        self,
        watched: Mapping[str, Watchable],
        kill: Callable[[int, int], None],
        used: Callable[[int], float] = cpu_seconds,
    ) -> None:
        self._watched = watched
        self._kill = kill
        self._used = used
        self._known: dict[str, Pulse] = {}

    def __repr__(self) -> str:
        silent = {name: one.silent for name, one in self._known.items() if one.silent}
        return f"<Watchdog {sorted(self._watched)} silent={silent}>"

    async def look(self) -> None:
        """Ask all at once, and kill those that were silent too often."""
        await asyncio.gather(*(self._ask(name) for name in self._watched))

    async def _ask(self, name: str) -> None:
        heard = await self._watched[name].ask()
        if heard.pid is None:
            return
        pulse, used = self._known.get(name), self._used(heard.pid)
        if pulse is not None and pulse.pid != heard.pid:
            pulse = None  # it has been replaced
        if heard.is_well and pulse is not None:
            pulse.answered(used)
        elif heard.is_well:
            _log.debug("%s (%d) responds; watching it", name, heard.pid)
            self._known[name] = Pulse(heard.pid, used)
        elif pulse is not None and (why := pulse.was_silent(used)):
            _log.error("%s (%d) %s; killing it", name, heard.pid, why)
            del self._known[name]
            self._kill(heard.pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def watching(watched: Mapping[str, Watchable]) -> AsyncIterator[None]:
    """Watch these processes inside the block."""
    watch = Watchdog(watched, _kill)

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
