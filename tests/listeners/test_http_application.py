"""Applications behind the data port: whatever they answer, their callers are told a request id."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from listeners.http_clients import Client
from listeners.http_messages import request
from listeners.http_scene import Scene, in_scene

from serve.app.serving import Server
from serve.listeners.http.client import HttpClient

GET = partial(request, b"", method="GET")


def app() -> FastAPI:
    made = FastAPI()

    @made.get("/plain")
    async def plain() -> dict[str, int]:
        return {"a": 1}

    @made.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a fault of ours")

    return made


@asynccontextmanager
async def behind(scene: Scene, application: Any) -> AsyncIterator[Client]:
    """A client of this application, on a port of the scene's listener."""
    server = Server(application, protocol=partial(HttpClient, scene.listener))
    server.config.load()
    loop = asyncio.get_running_loop()
    made = partial(HttpClient, scene.listener, server.config, server.server_state, {})
    listening = await loop.create_server(made, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    scene.clients.append(client)
    yield client
    listening.close()


@pytest.mark.parametrize(("path", "status"), [("/plain", 200), ("/nowhere", 404), ("/broken", 500)])
@in_scene()
async def test_an_answer_that_names_no_call_is_given_a_name(
    scene: Scene, path: str, status: int
) -> None:
    async with behind(scene, app()) as client:
        given = await client.ask(GET("X-Request-Id: r-1", path=path))
        assert (given.status, given.header("servegate-request-id")) == (status, "r-1")
    async with behind(scene, app()) as client:
        made = await client.ask(GET(path=path))
        assert made.header("servegate-request-id") not in (None, "", "r-1")


@in_scene()
async def test_an_answer_that_names_its_call_is_left_alone(scene: Scene) -> None:
    async def names(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"servegate-request-id", b"its own")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    async with behind(scene, names) as client:
        answer = await client.ask(GET("X-Request-Id: r-1", path="/"))
    assert answer.header("servegate-request-id") == "its own"
