"""Quarantine: a throw-away Triton tries a version before any serving replica sees it.

    start ──▶ load, one order after the other ──▶ the caller asks it ──▶ killed
                │                                    │
                └─ refused · too slow · too large · died twice ─▶ TrialFailed, killed

It listens on loopback, has the lowest claim to processor and memory, and knows no secret. Nothing
of it outlives this process: see `serve/processes`; what a killed process has left is swept away
when the next quarantine is made. A bench, where times are measured, is the same with a usual claim.

Watches the Triton of a trial: it is killed when it takes too much, and told when it has died.

Nobody who talks to it is interrupted: its connections break, and the reason is told here.
"""

import asyncio
import contextlib
import hashlib
import http.client
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from serve.core.errors import (
    ServegateError,
    TrialFailed,
    TritonDidNotStart,
    TritonFailed,
    Unavailable,
)
from serve.core.replicas import Replica
from serve.processes import Child, Family, Ledger, Program, spawn, sweep_shared_memory
from serve.triton import metrics
from serve.triton.backend_directory import build_backend_directory
from serve.triton.control import TritonControl
from serve.triton.installation import Installation
from serve.triton.local_triton import LauncherSetup, command, shared_memory_prefix
from serve.triton.log_relay import LogRelay
from serve.triton.ports import LOOPBACK, free_ports
from serve.triton.probe import ProbeResult, look

# --- watches the Triton of a trial ----------------------------------------------------------------


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


# --- quarantine -----------------------------------------------------------------------------------


LEDGER_FILE = "quarantine.json"
NAME = "quarantine"
_LOADS = 2  # tries, where a Triton dies while it loads
_NICE = 10
_STARTS = 3  # a port that was free may be taken when Triton comes to it
_PROBE_PAUSE = 0.05  # seconds
_QUICK = 10.0  # seconds for a question that needs no work
_METRICS_INTERVAL = 0.2  # seconds between two readings of the GPUs
_WITHHELD = ("SERVEGATE_", "AWS_", "AZURE_", "GOOGLE_", "PG")  # variables that may hold secrets


@dataclass(frozen=True, slots=True)
class QuarantineOrder:
    """A model to load: its name in Triton, and its configuration as JSON, or empty for its own."""

    name: str
    config_json: str


async def _is_never_over() -> None:
    await asyncio.Event().wait()


async def _refuses(orders: Sequence[QuarantineOrder]) -> "QuarantineTrial":
    raise TrialFailed(f"{orders[-1].name} cannot be loaded again here")


@dataclass(frozen=True, slots=True)
class QuarantineTrial:
    """A Triton that has loaded everything. `memory` is the bytes that the last order added to its
    processes, `gpu_memory` those on the GPUs; None where there is no GPU.

    `again` obeys further orders, and raises `TrialFailed` as a trial does; `is_over` returns when
    the Triton has died or was killed, of which the end of the trial says why.
    """

    replica: Replica
    memory: int
    gpu_memory: int | None = None
    again: Callable[[Sequence[QuarantineOrder]], Awaitable["QuarantineTrial"]] = field(
        default=_refuses, repr=False
    )
    is_over: Callable[[], Awaitable[None]] = field(default=_is_never_over, repr=False)


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """`memory`: bytes that each order may add, until the trial is over. `loading`: seconds for
    each order. `starting`: seconds until Triton answers."""

    memory: int = 4 << 30
    loading: float = 300.0
    starting: float = 60.0


class Quarantine:
    """Trials, one at a time. The caller holds the lock of the state folder.

    `avoid` are ports that belong to others, even if nobody listens on them now. `name` is what
    it calls itself. `steps_back`: it lets everything else on the machine go first.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        state: Path,
        logger: logging.Logger,
        limits: TrialLimits | None = None,
        extra_args: tuple[str, ...] = (),
        environ: Mapping[str, str] = os.environ,
        avoid: Container[int] = (),
        draw: Callable[[], float] = random.random,
        name: str = NAME,
        steps_back: bool = True,
    ) -> None:
        self._installation = installation
        self._state = state.resolve()
        self._logger = logger
        self._limits = limits or TrialLimits()
        self._extra_args = extra_args
        self._environ = environ
        self._avoid = avoid
        self._draw = draw
        self._name = name
        self._steps_back = steps_back
        self._turn = asyncio.Lock()
        self._mark = hashlib.sha256(os.fsencode(self._state)).hexdigest()[:8]
        self._server_id = f"servegate-{self._mark}-{name}"
        self._ledger = Ledger(self._state / LEDGER_FILE)
        self._ledger.sweep()
        self._sweep_shared_memory()

    def __repr__(self) -> str:
        return f"<Quarantine {self._state} {'busy' if self._turn.locked() else 'free'}>"

    @contextlib.asynccontextmanager
    async def trial(
        self, repository: Path, orders: Sequence[QuarantineOrder]
    ) -> AsyncIterator[QuarantineTrial]:
        """A Triton on this folder that has loaded the orders, those that others need first.

        `TrialFailed` says why the last order or one that it needs is not fit, also after it was
        loaded; it takes the place of an error that the caller meets because Triton is gone.
        `TritonDidNotStart` is no fault of the models.
        """
        async with self._turn:
            setup = await asyncio.to_thread(self._setup, repository)
            clean = _Cleaner(setup, orders)
            try:
                async with contextlib.AsyncExitStack() as stack:
                    watch, loaded = await self._loaded(setup, orders, clean, stack)
                    try:
                        yield loaded
                    except ServegateError as error:
                        await _know(watch, error)
                        _raise(watch, error)
                    if watch.failure is not None:
                        raise watch.failure
            finally:
                self._sweep_shared_memory()

    async def _loaded(
        self,
        setup: LauncherSetup,
        orders: Sequence[QuarantineOrder],
        clean: "_Cleaner",
        stack: contextlib.AsyncExitStack,
    ) -> tuple[QuarantineWatch, QuarantineTrial]:
        """A Triton that has loaded the orders; it ends with the stack.

        One that dies meanwhile gets a second chance: on a busy machine a sound model was seen to
        kill its Triton once in some hundred loads. One that is at fault kills the next one, too.
        """
        log = LogRelay(self._name, self._logger)
        for left in reversed(range(_LOADS)):
            child, replica = await self._start(setup, log)
            watch = await stack.enter_async_context(
                watching(child, last_words=lambda: clean(_end_of(log)), limit=self._limits.memory)
            )
            again = partial(self._load, replica, watch=watch, clean=clean)
            try:
                loaded = await again(orders)
                return watch, replace(loaded, again=again, is_over=watch.is_over)
            except ServegateError as error:
                await _know(watch, error)
                if not (left and watch.has_died):
                    _raise(watch, error)
                self._logger.warning("%s; trying once more", watch.failure)
                await stack.aclose()
        raise AssertionError("the last try raises")

    async def _load(
        self,
        replica: Replica,
        orders: Sequence[QuarantineOrder],
        *,
        watch: QuarantineWatch,
        clean: "_Cleaner",
    ) -> QuarantineTrial:
        control = TritonControl(replica, timeout=_QUICK)
        memory, gpu = 0, None
        try:
            for order in orders:
                it = "it" if order is orders[-1] else f"'{order.name}', which it needs,"
                loading = "while loading" + ("" if it == "it" else f" '{order.name}'")
                before = await watch.begin(loading)
                gpu_before = await asyncio.to_thread(_gpu_memory, replica)
                await self._obey(order, it, control, watch, clean)
                memory = max(0, await watch.memory() - before)
                if gpu_before is not None:
                    await asyncio.sleep(2 * _METRICS_INTERVAL)  # until Triton has looked again
                    gpu = max(0, (await asyncio.to_thread(_gpu_memory, replica) or 0) - gpu_before)
        finally:
            await control.close()
        watch.doing = "after it was loaded"
        return QuarantineTrial(replica, memory, gpu)

    async def _obey(
        self,
        order: QuarantineOrder,
        it: str,
        control: TritonControl,
        watch: QuarantineWatch,
        clean: "_Cleaner",
    ) -> None:
        try:
            async with asyncio.timeout(self._limits.loading):
                await control.load(order.name, order.config_json or None)
        except TimeoutError:
            raise TrialFailed(f"{it} was still loading after {self._limits.loading:g} s") from None
        except (TritonFailed, Unavailable) as error:
            if isinstance(error, Unavailable):
                await watch.settle()
            raise TrialFailed(f"{it} did not load", why=clean(error.why or error.what)) from error

    async def _start(self, setup: LauncherSetup, log: LogRelay) -> tuple[Child, Replica]:
        """A Triton that answers."""
        why = ""
        for _ in range(_STARTS):
            self._sweep_shared_memory()
            log.begin()
            ports = free_ports(3, self._draw, besides=self._avoid)
            replica = Replica(self._name, LOOPBACK, ports[0], ports[1], ports[2])
            try:
                child = spawn(self._program(setup, replica), on_line=log, ledger=self._ledger)
            except OSError as error:
                raise TritonDidNotStart(self._name, str(error.strerror), ()) from error
            try:
                async with asyncio.timeout(self._limits.starting):
                    if await self._answers(child, replica):
                        return child, replica
                why = str(await child.wait())
            except TimeoutError:
                await child.stop(0)
                why = f"no answer within {self._limits.starting:g} seconds"
                break
            except BaseException:
                await child.stop(0)
                raise
        raise TritonDidNotStart(self._name, why, log.last_lines)

    async def _answers(self, child: Child, replica: Replica) -> bool:
        """Wait until it answers; False when it ends before."""
        while not child.is_gone:
            if await look(replica, self._server_id) is ProbeResult.LIVE:
                return True
            await asyncio.sleep(_PROBE_PAUSE)
        return False

    def _setup(self, repository: Path) -> LauncherSetup:
        backends = build_backend_directory(self._installation, self._state)
        interval = f"--metrics-interval-ms={_METRICS_INTERVAL * 1000:.0f}"
        return LauncherSetup(
            installation=self._installation,
            backends=backends,
            repositories=(str(repository.resolve()),),
            folder=backends.parent,
            mark=self._mark,
            extra_args=(interval, *self._extra_args),
            environ=self._environ,
            drain=0,
        )

    def _program(self, setup: LauncherSetup, replica: Replica) -> Program:
        inherited = {k: v for k, v in setup.environ.items() if not k.startswith(_WITHHELD)}
        return Program(
            self._name,
            command(setup, replica, self._server_id),
            env=setup.installation.environment(inherited),
            cwd=setup.folder,
            grace=0.0,  # nobody waits for its last words
            nice=_NICE if self._steps_back else None,
        )

    def _sweep_shared_memory(self) -> None:
        sweep_shared_memory(shared_memory_prefix(self._server_id))


class _Cleaner:
    """Takes the paths of this machine out of Triton's sentences."""

    def __init__(self, setup: LauncherSetup, orders: Sequence[QuarantineOrder]) -> None:
        (repository,) = setup.repositories
        self._shorter = {f"{repository}/{order.name}/": "" for order in orders} | {
            f"{repository}/": "",
            repository: "the repository",
            str(setup.backends): "backends",
            str(setup.folder): "triton",
            str(setup.installation.libraries.parent): "site-packages",
        }

    def __call__(self, text: str) -> str:
        for path, shorter in self._shorter.items():
            text = text.replace(path, shorter)
        return text


async def _know(watch: QuarantineWatch, error: ServegateError) -> None:
    """Whether the Triton has gone is told a moment after its connections broke."""
    if isinstance(error, Unavailable):
        await watch.settle()


def _raise(watch: QuarantineWatch, error: ServegateError) -> NoReturn:
    """Why the trial is over, if it is; else the error is its own reason."""
    if watch.failure is not None:
        raise watch.failure from error
    raise error


def _end_of(log: LogRelay) -> str:
    return f"; the end of its log: {' | '.join(log.last_lines)}" if log.last_lines else ""


def _gpu_memory(replica: Replica) -> int | None:
    """Bytes in use on all GPUs that this Triton sees; None when it sees none, or does not say."""
    connection = http.client.HTTPConnection(replica.host, replica.metrics_port, timeout=_QUICK)
    try:
        connection.request("GET", "/metrics")
        readings = metrics.read(connection.getresponse().read().decode())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    used = [gpu.memory_used for gpu in readings.gpus.values() if gpu.memory_used is not None]
    return int(sum(used)) if used else None
