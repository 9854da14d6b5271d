"""Keeps one program running: restarts it, ever more slowly, and says how it is.

                 answers                     exits
    starting ──────────────▶ running ──────────────────▶ backing-off
       │  ▲                                                  ▲   │
       │  └──────────────────── the delay is over ───────────│───┘
       └──────── exits, is hopeless, cannot be executed ─────┘

    cancelled, in any state: SIGTERM, grace, SIGKILL ──▶ stopped

The delay doubles from one failure to the next; after a life that was healthy for long enough the
count of failures starts again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from serve.processes.children import Child, Program, spawn
from serve.processes.ledger import Ledger


class SupervisedState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing-off"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProcessCondition:
    """How a supervised program is: `reason` says in words how its last life ended, if one has."""

    state: SupervisedState = SupervisedState.STOPPED
    restarts: int = 0
    pid: int | None = None
    reason: str = ""
    delay: float = 0.0  # seconds until the next start, while backing off


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds: the first delay, the longest one, and how long a life forgives earlier failures."""

    first: float = 0.2
    longest: float = 10.0
    healthy: float = 30.0

    def delay(self, failures: int) -> float:
        """The delay after this many failures in a row (1 or more)."""
        doublings = min(failures - 1, 64)  # far beyond any limit, and no overflow
        return min(self.longest, self.first * 2.0**doublings)


class Clock(Protocol):
    """Where a supervised program gets its time from; tests script it."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this time."""
        ...


class SystemClock:
    """The time that really passes."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Hopeless(Exception):
    """What a probe raises when the program runs, but will never answer; says why in words."""


class Supervised:
    """One program that is kept running while `run` runs.

    `program` is asked before every start. `probe` returns once the program answers, which makes
    it `running`; without a probe it is running as soon as it is executed. A probe that raises
    `Hopeless` ends this life of the program. `on_change` is called with every new condition, in
    the loop's thread.
    """

    def __init__(
        self,
        program: Callable[[], Program],
        *,
        on_line: Callable[[str], None],
        on_change: Callable[[ProcessCondition], None] = lambda condition: None,
        probe: Callable[[], Awaitable[None]] | None = None,
        ledger: Ledger | None = None,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.condition = ProcessCondition()
        self._program = program
        self._on_line = on_line
        self._on_change = on_change
        self._probe = probe
        self._ledger = ledger
        self._backoff = backoff or Backoff()
        self._clock = clock or SystemClock()
        self._healthy_since: float | None = None
        self._verdict = ""

    def __repr__(self) -> str:
        now = self.condition
        return f"<Supervised {now.state} pid={now.pid} restarts={now.restarts} {now.reason!r}>"

    async def run(self) -> None:
        """Run it until this task is cancelled; then the program is stopped within its grace."""
        failures = 0
        self.condition = ProcessCondition(SupervisedState.STARTING)
        try:
            while True:
                reason = await self._live()
                failures = 1 if self._was_healthy() else failures + 1
                delay = self._backoff.delay(failures)
                self._become(SupervisedState.BACKING_OFF, reason=reason, delay=delay)
                await self._clock.sleep(delay)
                self.condition = replace(self.condition, restarts=self.condition.restarts + 1)
        finally:
            self._become(SupervisedState.STOPPED, reason=self.condition.reason)

    async def _live(self) -> str:
        """One life of the program, from its start to its end; answers how it ended."""
        self._healthy_since, self._verdict = None, ""
        self._become(SupervisedState.STARTING, reason=self.condition.reason)
        program = self._program()
        try:
            child = spawn(program, on_line=self._on_line, ledger=self._ledger)
        except OSError as error:
            return f"{program.argv[0]} cannot be executed: {error.strerror or error}"
        async with child, asyncio.TaskGroup() as tasks:
            announcing = tasks.create_task(self._announce(child))
            ended = await child.wait()
            announcing.cancel()
        return self._verdict or str(ended)

    async def _announce(self, child: Child) -> None:
        """Say that the program has begun, and then that it answers; or end it, if it never will."""
        reason = self.condition.reason
        if self._probe is not None:
            self._become(SupervisedState.STARTING, reason=reason, pid=child.pid)
            try:
                await self._probe()
            except Hopeless as verdict:
                self._verdict = str(verdict)
                await child.stop()
                return
        self._healthy_since = self._clock.now()
        self._become(SupervisedState.RUNNING, reason=reason, pid=child.pid)

    def _was_healthy(self) -> bool:
        since = self._healthy_since
        return since is not None and self._clock.now() - since >= self._backoff.healthy

    def _become(
        self, state: SupervisedState, *, reason: str, pid: int | None = None, delay: float = 0.0
    ) -> None:
        self.condition = ProcessCondition(state, self.condition.restarts, pid, reason, delay)
        self._on_change(self.condition)
