"""Serving: uvicorn as a part of a process, over TLS."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from certificates import Authority

from serve.app.asking import Line
from serve.app.ports import listener
from serve.app.serving import Server
from serve.app.tls import HTTP, Tls

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on either event loop, within ten seconds."""

    async def bounded(work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wait_for(work, 10)

    return lambda work: request.param(bounded(work))


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Says which scheme the application sees."""
    body = str(scope["scheme"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def test_a_server_speaks_tls_and_ends_with_its_connections(run: Run, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = Tls(*authority.issue("one")).listener("http", HTTP)

    async def scene() -> None:
        port = listener("127.0.0.1", 0)
        port.listen()  # who connects before the server waits
        server = Server(answer, tls=context, timeout_graceful_shutdown=1)
        serving = asyncio.create_task(server.serve(sockets=[port]))
        trust = ssl.create_default_context(cafile=str(authority.path))
        url = f"https://localhost:{port.getsockname()[1]}"
        async with Line(url, trust=lambda: trust) as line:
            for _ in range(2):
                assert (await line.get("/")).body == b"https"
            server.should_exit = True
            await serving
            with pytest.raises(OSError):
                await line.get("/")

    run(scene())


def test_a_client_that_does_not_finish_its_handshake_is_cut_off(run: Run, tmp_path: Path) -> None:
    context = Tls(*Authority(tmp_path).issue("one")).listener("http", HTTP)

    async def scene() -> None:
        port = listener("127.0.0.1", 0)
        port.listen()  # who connects before the server waits
        server = Server(answer, tls=context, handshake=0.2, timeout_graceful_shutdown=1)
        serving = asyncio.create_task(server.serve(sockets=[port]))
        with socket.create_connection(port.getsockname()) as one:
            one.setblocking(False)
            one.send(b"\x16\x03\x01")
            assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
        server.should_exit = True
        await serving

    run(scene())
