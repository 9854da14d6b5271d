"""Serving: uvicorn as a part of a process, over TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from certificates import Authority
from loops import in_each_loop

from serve.app.http_server import HttpServer
from serve.app.internal_http import InternalConnection
from serve.app.ports import listener
from serve.app.tls import HTTP, Tls


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Says which scheme the application sees."""
    body = str(scope["scheme"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(
    authority: Authority, **more: Any
) -> AsyncIterator[tuple[HttpServer, socket.socket]]:
    context = Tls(*authority.issue("one")).listener("http", HTTP)
    with listener("127.0.0.1", 0) as port:
        port.listen()  # who connects before the server waits
        server = HttpServer(answer, tls=context, timeout_graceful_shutdown=1, **more)
        running = asyncio.create_task(server.serve(sockets=[port]))
        yield server, port
        server.should_exit = True
        await running


@in_each_loop
async def test_a_server_speaks_tls_and_ends_with_its_connections(authority: Authority) -> None:
    trust = ssl.create_default_context(cafile=str(authority.path))
    async with AsyncExitStack() as stack:
        _, port = await stack.enter_async_context(serving(authority))
        url = f"https://localhost:{port.getsockname()[1]}"
        async with InternalConnection(url, trust=lambda: trust) as line:
            for _ in range(2):
                assert (await line.get("/")).body == b"https"
            await stack.aclose()
            with pytest.raises(OSError):
                await line.get("/")


@in_each_loop
async def test_a_client_that_does_not_finish_its_handshake_is_cut_off(authority: Authority) -> None:
    async with serving(authority, handshake=0.2) as (_, port):
        with socket.create_connection(port.getsockname()) as one:
            one.setblocking(False)
            one.send(b"\x16\x03\x01")
            assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
