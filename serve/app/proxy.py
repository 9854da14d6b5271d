"""The data plane of one machine: its workers on shared ports, and their metrics added up."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.app.addresses import require_safe_addresses
from serve.app.journals import require_otel
from serve.app.open_files import allow_open_files
from serve.app.paths import LEDGER_FILE, LOCK_FILE, worker_socket
from serve.app.ports import listener, reserve, stop_on_signals
from serve.app.probes import Probes
from serve.app.secret import shared_secret
from serve.app.tls import HTTP, Tls
from serve.app.watchdog import WatchedWorker, watching
from serve.processes import (
    Backoff,
    Ledger,
    ProcessCondition,
    Program,
    Supervised,
    SupervisedState,
    hold_lock,
)
from serve.settings import PREFIX, Settings

_log = logging.getLogger("servegate.processes")
_WORKERS = "workers"


def child_program(settings: Settings, kind: str, *, grace: float) -> Program:
    """One of our own processes, with its settings in the environment."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    return Program(
        name=kind,
        argv=(sys.executable, "-P", "-m", "serve.app.entry", kind),
        env=own | settings.environment(),
        grace=grace,
    )


def relay_line(line: str) -> None:
    """A child's log line is already formatted: pass it on, unless stderr is on a full disk."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


@contextlib.asynccontextmanager
async def running(
    name: str,
    program: Callable[[], Program],
    ledger: Ledger,
    *,
    probe: Callable[[], Awaitable[None]] | None = None,
    backoff: Backoff | None = None,
) -> AsyncIterator[Supervised]:
    """Keep a program of ours running inside the block; see `Supervised`."""

    def report(now: ProcessCondition) -> None:
        if now.state is SupervisedState.BACKING_OFF:
            words = "%s ended: %s; it restarts in %.1f s"
            _log.warning(words, name, now.reason, now.delay)

    supervised = Supervised(
        program,
        on_line=relay_line,
        on_change=report,
        ledger=ledger,
        probe=probe,
        backoff=backoff,
    )
    async with asyncio.TaskGroup() as tasks:
        started = tasks.create_task(supervised.run())
        try:
            yield supervised
        finally:
            started.cancel()


class DataPlane:
    """The workers of one machine and the metrics port. An async context manager."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        *,
        sources: Mapping[str, str | Path] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self._tls = Tls.for_start(settings)
        require_otel(settings)
        self._ledger = ledger
        self._sources = sources
        self._claims: list[socket.socket] = []
        self._stack = contextlib.AsyncExitStack()
        self._working = contextlib.AsyncExitStack()  # what ends before the metrics port does
        self._probes: Probes | None = None

    def __repr__(self) -> str:
        return f"<DataPlane of {self._settings.workers} workers>"

    def reserve(self) -> None:
        """Make sure that the ports are free, before anything is started."""
        for name in ("http_port", "grpc_port", "metrics_port"):
            flag = name.replace("_", "-")
            port = getattr(self._settings, name)
            self._claims.append(reserve(self._settings.host, port, flag))

    async def __aenter__(self) -> "DataPlane":
        settings = self._settings
        self._stack.callback(self._release)
        parent = await self._working.enter_async_context(
            running(_WORKERS, self._program, self._ledger)
        )
        # Takes a while to import: the workers start meanwhile.
        from serve.app.metrics import Scrape, serving_metrics
        from serve.telemetry import Meters

        workers = {
            f"worker-{number}": worker_socket(settings, number)
            for number in range(settings.workers)
        }
        meters, context = Meters(), None
        if self._tls is not None:
            meters.table(self._tls.collect)
            context = self._tls.listener("metrics", HTTP)
            looking = asyncio.create_task(self._tls.keep())
            self._stack.callback(looking.cancel)
        scrape = Scrape(workers, self._sources, self._processes, own=meters.text)
        self._probes = Probes(
            workers, runs=lambda: parent.condition.state is SupervisedState.RUNNING
        )
        port = listener(settings.host, settings.metrics_port)
        await self._stack.enter_async_context(
            serving_metrics(port, scrape, self._probes, tls=context)
        )
        watched = {name: WatchedWorker(path) for name, path in workers.items()}
        await self._working.enter_async_context(watching(watched))
        return self

    async def __aexit__(self, *exc: Any) -> None:
        if self._probes is not None:
            self._probes.drain()
        try:
            await self._working.aclose()
        finally:
            await self._stack.aclose()

    def _program(self) -> Program:
        return child_program(self._settings, _WORKERS, grace=self._settings.drain_timeout + 2)

    def _processes(self) -> dict[str, int]:
        """This process and those children of it that run our own code."""
        ours = {_WORKERS, *self._sources}
        children = {entry.name: entry.pid for entry in self._ledger.entries if entry.name in ours}
        return {"supervisor": os.getpid(), **children}

    def _release(self) -> None:
        for one in self._claims:
            one.close()


async def run_proxy(settings: Settings, *, say: Callable[[str], None]) -> None:
    """`servegate proxy`: the data plane alone, in front of a control plane elsewhere."""
    await require_safe_addresses(settings, data=True, knows_keys=False)
    stop = stop_on_signals()
    if warning := allow_open_files(settings, data=True):
        say(warning)
    with hold_lock(settings.state_path / LOCK_FILE):
        ledger = Ledger(settings.state_path / LEDGER_FILE)
        ledger.sweep()
        shared_secret(settings)
        plane = DataPlane(settings, ledger)
        plane.reserve()
        async with plane:
            ports = f"{settings.http_port} HTTP, {settings.grpc_port} gRPC"
            say(f"gateway on {settings.host}: {ports}")
            say(f"control plane: {settings.control_url}")
            await stop.wait()
