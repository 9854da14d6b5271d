"""Starts the Triton servers of this machine and keeps them running until it is left."""

import asyncio
import hashlib
import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

from serve.core.replicas import Replica
from serve.processes import Backoff, Clock, Condition, Ledger, SystemClock
from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Installation
from serve.triton.local_triton import LocalTriton, Setup


class Launcher:
    """The local Tritons, alive inside of `async with`.

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
        on_change: Callable[[str, Condition], None] = lambda name, condition: None,
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
        self._news = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []
        self._tritons: tuple[LocalTriton, ...] = ()

    def __repr__(self) -> str:
        states = " ".join(f"{name}={now.state}" for name, now in self.conditions.items())
        return f"<Launcher {states or 'not entered'}>"

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Where they answer, `local-0` first; final as soon as `wait_ready` has returned."""
        return tuple(triton.replica for triton in self._tritons)

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """How each of them is, by its name."""
        return MappingProxyType({one.name: one.supervised.condition for one in self._tritons})

    async def __aenter__(self) -> "Launcher":
        """Sweep away what a killed predecessor left, and start; does not wait for answers."""
        self._ledger.sweep()
        setup = self._setup()
        self._tritons = tuple(self._triton(index, setup) for index in range(self._count))
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(one.supervised.run()) for one in self._tritons]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all of them, side by side. To be cancelled here means to kill them at once."""
        for task in self._running:
            task.cancel()
        if isinstance(error, asyncio.CancelledError):  # perhaps by the group, for a task's error
            await self._tasks.__aexit__(kind, error, traceback)
        else:
            await self._tasks.__aexit__(None, None, None)

    async def wait_ready(
        self, on_progress: Callable[[str], None] = lambda sentence: None, *, within: float = 60.0
    ) -> None:
        """Return when every Triton has answered once; `on_progress` gets a sentence for each.

        Raises TritonDidNotStart as soon as one of them has failed, or after `within` seconds.
        """
        waiting = list(self._tritons)
        try:
            async with asyncio.timeout(within):
                while waiting:
                    self._news.clear()
                    for triton in tuple(waiting):
                        if triton.failure is not None:
                            raise triton.failure
                        if triton.has_answered:
                            waiting.remove(triton)
                            on_progress(f"Triton {triton.name} answers on {triton.replica.address}")
                    if waiting:
                        await self._news.wait()
        except TimeoutError:
            raise waiting[0].did_not_start(f"no answer within {within:g} seconds") from None

    def _setup(self) -> Setup:
        state = self._state.resolve()
        backends = build_backend_directory(self._installation, state)
        return Setup(
            installation=self._installation,
            backends=backends,
            repositories=self._repositories,
            folder=backends.parent,
            mark=hashlib.sha256(os.fsencode(state)).hexdigest()[:8],
            extra_args=self._extra_args,
            environ=self._environ,
            drain=self._drain,
        )

    def _triton(self, index: int, setup: Setup) -> LocalTriton:
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

    def _on_change(self, name: str, condition: Condition) -> None:
        self._news.set()
        self._tell(name, condition)
