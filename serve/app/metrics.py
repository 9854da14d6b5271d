"""The metrics port of one machine: what all workers and control count, and what they use."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from serve.app.http_server import HttpServer
from serve.app.internal_http import InternalConnection
from serve.app.probes import Probes
from serve.app.usage import families
from serve.processes import start_time
from serve.telemetry import CONTENT_TYPE
from serve.wire.totals import SourceReading, Totals

_log = logging.getLogger("servegate.metrics")
PATIENCE = 2.0  # seconds for one answer


class Scrape:
    """Asks every source for its numbers: workers on Unix sockets, others where they are, by name.

    `own` are numbers of this process; `processes` says which further ones of ours there are, by
    pid.
    """

    def __init__(
        self,
        workers: Mapping[str, Path],
        others: Mapping[str, str | Path],
        processes: Callable[[], Mapping[str, int]],
        *,
        own: Callable[[], bytes] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._own = own
        self._workers = workers
        self._others = others
        self._processes = processes
        self._patience = patience
        self._totals = Totals()
        self._one_at_a_time = asyncio.Lock()  # an older reading must not overtake a newer one

    def __repr__(self) -> str:
        return f"<Scrape of {sorted({*self._workers, *self._others})}>"

    async def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        async with self._one_at_a_time:
            readings: dict[str, SourceReading] = {}
            if self._own is not None:
                readings["supervisor"] = SourceReading(self._own().decode())
            pids = dict(self._processes())
            async with asyncio.TaskGroup() as tasks:
                for name, path in self._workers.items():
                    tasks.create_task(self._ask_worker(name, path, readings, pids))
                for name, url in self._others.items():
                    tasks.create_task(self._ask_other(name, url, readings))
            taken = [name for name in sorted(readings) if self._take(name, readings[name])]
            totals = self._totals.text(taken)
        return totals.encode() + _text(families(dict(sorted(pids.items()))))

    def _take(self, name: str, reading: SourceReading) -> bool:
        """Add up what a source says; whether it can be read."""
        try:
            self._totals.take(name, reading)
        except ValueError as error:
            _log.warning("cannot read the metrics of %s: %s", name, error)
            return False
        return True

    async def _ask_worker(
        self, name: str, path: Path, readings: dict[str, SourceReading], pids: dict[str, int]
    ) -> None:
        async with InternalConnection(path) as line:
            text = await _get(line, name, "/metrics", self._patience)
            if (pid := line.listener) is not None:
                pids[name] = pid
                if text is not None and (started := start_time(pid)) is not None:
                    readings[name] = SourceReading(text, life=(pid, started))

    async def _ask_other(
        self, name: str, where: str | Path, readings: dict[str, SourceReading]
    ) -> None:
        async with InternalConnection(where) as line:
            if (text := await _get(line, name, "/metrics", self._patience)) is not None:
                readings[name] = SourceReading(text)


@contextlib.asynccontextmanager
async def serving_metrics(
    port: socket.socket, scrape: Scrape, probes: Probes, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve `/metrics` and the probes on a bound socket."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        status, media = 404, "text/plain"
        body = b"see /metrics, /livez and /readyz\n"
        if scope["path"] == "/metrics":
            status, media, body = 200, CONTENT_TYPE, await scrape.text()
        elif probe := await probes.answer(scope["path"]):
            status, body = probe[0], f"{probe[1]}\n".encode()
        headers = [(b"content-type", media.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = HttpServer(answer, tls=tls, timeout_graceful_shutdown=1)
    serving = asyncio.create_task(server.serve(sockets=[port]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def answers(where: str | Path, target: str = "/livez") -> bool:
    """Whether a process of ours is well: there is a good answer within 2 s."""
    async with InternalConnection(where) as line:
        return await _get(line, str(where), target, PATIENCE) is not None


async def _get(line: InternalConnection, name: str, target: str, patience: float) -> str | None:
    """The text of a good answer in time; a source without one is left out until it has one."""
    try:
        async with asyncio.timeout(patience):
            answer = await line.get(target)
        if answer.status != 200:
            raise ConnectionError(f"status {answer.status}")
        return answer.body.decode()
    except (OSError, ValueError) as error:
        _log.debug("no response from %s: %s", name, error or type(error))
        return None


class _Families(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Families(tuple(metrics)))
    return generate_latest(registry)
