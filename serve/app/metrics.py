"""The metrics port of one machine: the numbers of all workers and of control, added up."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from serve.app.serving import Server
from serve.telemetry import CONTENT_TYPE, merge

_log = logging.getLogger("servegate.metrics")
_PATIENCE = aiohttp.ClientTimeout(total=2)


@contextlib.asynccontextmanager
async def serving_metrics(
    port: socket.socket, workers: Mapping[str, Path], others: Mapping[str, str]
) -> AsyncIterator[None]:
    """Serve `/metrics` on a bound socket: Unix sockets of workers and URLs of others, by name."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        found = scope["path"] == "/metrics"
        body = await _collect(workers, others) if found else b"see /metrics\n"
        headers = [(b"content-type", CONTENT_TYPE.encode())]
        status = 200 if found else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = Server(answer, timeout_graceful_shutdown=1)
    serving = asyncio.create_task(server.serve(sockets=[port]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def answers(url: str, path: Path | None = None) -> bool:
    """Whether something answers there, over a Unix socket when a path is given, within 2 s."""
    connector = aiohttp.UnixConnector(str(path)) if path else aiohttp.TCPConnector()
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=_PATIENCE) as session,
            session.get(url) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


async def _collect(workers: Mapping[str, Path], others: Mapping[str, str]) -> bytes:
    """Read every source; one that does not answer is left out until it does again."""
    texts: dict[str, str] = {}
    for name, path in workers.items():
        await _fetch(name, "http://worker/metrics", aiohttp.UnixConnector(str(path)), texts)
    for name, url in others.items():
        await _fetch(name, url, aiohttp.TCPConnector(), texts)
    return merge(texts)


async def _fetch(
    name: str, url: str, connector: aiohttp.BaseConnector, texts: dict[str, str]
) -> None:
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=_PATIENCE) as session,
            session.get(url) as response,
        ):
            response.raise_for_status()
            texts[name] = await response.text()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        _log.debug("no metrics from %s: %s", name, error)
