"""Starts the Triton servers of this machine and keeps them running until it is left.

More can be started meanwhile, and each can be stopped alone. A name is that of the lowest number
that is free, so a Triton that comes after another has left may have its name, and other ports.
"""

import asyncio
import hashlib
import itertools
import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

from serve.core.errors import TritonDidNotStart
from serve.core.replicas import Replica
from serve.processes import Backoff, Clock, Ledger, ProcessCondition, SystemClock
from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Installation
from serve.triton.local_triton import LauncherSetup, LocalTriton


class Launcher:
    """The local Tritons, alive inside of `async with`: `count` of them, at first.

    `repositories` are folders or URLs (`s3://…`); no two may have a model of one name. `drain` is
    how many seconds a stopping Triton may wait for requests in flight and for its models to unload.
    `on_change` hears, by the name of the replica, of every new condition. The caller holds the lock
    of the state folder.
    """

    def __init__(
        self,
        count: int,
        repositories: Iterable[str],
        *,
        state: Path,
        installation: Installation,
        ledger: Ledger,
        logger: logging.Logger,
        extra_args: tuple[str, ...] = (),
        environ: Mapping[str, str] = os.environ,
        drain: int = 5,
        on_change: Callable[[str, ProcessCondition], None] = lambda name, condition: None,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._count = count
        self._repositories = tuple(
            one if "://" in one else str(Path(one).resolve()) for one in repositories
        )
        self._state = state
        self._installation = installation
        self._ledger = ledger
        self._logger = logger
        self._extra_args = extra_args
        self._environ = environ
        self._drain = drain
        self._tell = on_change
        self._backoff = backoff or Backoff()
        self._clock = clock or SystemClock()
        self._draw = draw
        self._given: set[int] = set()  # ports
        self._news = asyncio.Event()  # another one after each change
        self._tasks = asyncio.TaskGroup()
        self._setup: LauncherSetup | None = None
        self._tritons: dict[int, LocalTriton] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        states = " ".join(f"{name}={now.state}" for name, now in self.conditions.items())
        return f"<Launcher {states or 'not entered'}>"

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Where they answer, `local-0` first; an address is final once something answers there."""
        return tuple(triton.replica for triton in self._ordered())

    @property
    def answering(self) -> tuple[Replica, ...]:
        """Those that have answered once; they may be starting anew."""
        return tuple(triton.replica for triton in self._ordered() if triton.has_answered)

    @property
    def failures(self) -> Mapping[str, TritonDidNotStart]:
        """Why the last start of one that has never answered failed, by name."""
        failed = {one.name: one.failure for one in self._ordered()}
        return {name: failure for name, failure in failed.items() if failure is not None}

    @property
    def conditions(self) -> Mapping[str, ProcessCondition]:
        """How each of them is, by its name."""
        return MappingProxyType({one.name: one.supervised.condition for one in self._ordered()})

    async def __aenter__(self) -> "Launcher":
        """Sweep away what a killed predecessor left, and start; does not wait for answers."""
        self._ledger.sweep()
        self._setup = self._common()
        await self._tasks.__aenter__()
        for _ in range(self._count):
            self.add()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all of them, side by side. To be cancelled here means to kill them at once."""
        for task in self._running.values():
            if not task.cancelling():  # else it is being stopped, and would be killed
                task.cancel()
        if isinstance(error, asyncio.CancelledError):  # perhaps by the group, for a task's error
            await self._tasks.__aexit__(kind, error, traceback)
        else:
            await self._tasks.__aexit__(None, None, None)

    def add(self) -> str:
        """Start one more, and give its name; does not wait for its answer."""
        assert self._setup is not None, "a launcher is entered before anything is started"
        index = next(number for number in itertools.count() if number not in self._tritons)
        triton = self._tritons[index] = self._triton(index, self._setup)
        self._running[triton.name] = self._tasks.create_task(triton.supervised.run())
        return triton.name

    async def remove(self, name: str) -> None:
        """Stop this one, and return when nothing is left of it."""
        running = self._running[name]
        if not running.cancelling():
            running.cancel()
        await asyncio.wait([running])
        self._running.pop(name, None)
        for index, triton in tuple(self._tritons.items()):
            if triton.name == name:
                del self._tritons[index]
                self._given -= triton.ports
        self._changed()

    async def news(self) -> None:
        """Return at the next change of any of them."""
        await self._news.wait()

    async def wait_ready(
        self, on_progress: Callable[[str], None] = lambda sentence: None, *, within: float = 60.0
    ) -> None:
        """Return when every Triton has answered once; `on_progress` gets a sentence for each.

        Raises TritonDidNotStart as soon as one of them has failed, or after `within` seconds.
        """
        waiting = list(self._ordered())
        try:
            async with asyncio.timeout(within):
                while waiting:
                    for triton in tuple(waiting):
                        if triton.failure is not None:
                            raise triton.failure
                        if triton.has_answered:
                            waiting.remove(triton)
                            on_progress(f"Triton {triton.name} answers on {triton.replica.address}")
                    if waiting:
                        await self.news()
        except TimeoutError:
            raise waiting[0].did_not_start(f"no answer within {within:g} seconds") from None

    def _ordered(self) -> list[LocalTriton]:
        return [triton for _, triton in sorted(self._tritons.items())]

    def _common(self) -> LauncherSetup:
        state = self._state.resolve()
        backends = build_backend_directory(self._installation, state)
        return LauncherSetup(
            installation=self._installation,
            backends=backends,
            repositories=self._repositories,
            folder=backends.parent,
            mark=hashlib.sha256(os.fsencode(state)).hexdigest()[:8],
            extra_args=self._extra_args,
            environ=self._environ,
            drain=self._drain,
        )

    def _triton(self, index: int, setup: LauncherSetup) -> LocalTriton:
        return LocalTriton(
            index,
            setup,
            ledger=self._ledger,
            logger=self._logger,
            on_change=self._on_change,
            backoff=self._backoff,
            clock=self._clock,
            draw=self._draw,
            given=self._given,
        )

    def _on_change(self, name: str, condition: ProcessCondition) -> None:
        self._changed()
        self._tell(name, condition)

    def _changed(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
