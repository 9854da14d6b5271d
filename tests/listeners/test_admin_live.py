"""The live data over HTTP, on a real socket: columns of what was, and a stream of what is."""

import asyncio
import contextlib
import dataclasses
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
from builders import until
from control.live.advised import Advised, told, tune
from control.live.watched import Scene
from listeners.admin_scene import application, assert_error, plane, send

from serve.app.serving import Server
from serve.control.live.sampler import MOST_VIEWERS, Live
from serve.control.live.viewers import Viewer
from serve.listeners.admin.live import LiveView, events


class Watched:
    """An admin application whose sampler waits for `more` before each further sample."""

    def __init__(self, folder: Path, scene: Scene | None = None, **about) -> None:
        self.scene = scene or Scene()
        self.more = asyncio.Event()
        self.live = Live(self.scene.sources, clock=self.scene.clock, sleep=self._sleep)
        self.app = application(plane(folder), **about)
        control = self.app.state.control
        self.app.state.control = dataclasses.replace(control, live=self.live)

    async def _sleep(self, seconds: float) -> None:
        await self.more.wait()
        self.more.clear()
        self.scene.clock.now += 1.0

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[httpx2.AsyncClient]:
        """On a port, while the sampler runs."""
        with socket.create_server(("127.0.0.1", 0)) as port:
            server = Server(self.app, timeout_graceful_shutdown=20)
            serving = asyncio.create_task(server.serve(sockets=[port]))
            self.running = asyncio.create_task(self.live.run())
            await until(lambda: server.started)
            url = f"http://127.0.0.1:{port.getsockname()[1]}"
            client = httpx2.AsyncClient(base_url=url, headers={"host": "localhost"}, timeout=20)
            try:
                yield client
            finally:
                self.running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self.running
                await client.aclose()
                server.should_exit = True
                await serving


async def data_of(lines: AsyncIterator[str]) -> dict:
    """The next event's sample."""
    async for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


async def _until(lines: AsyncIterator[str], start: str) -> AsyncIterator[str]:
    """The lines up to the first one that starts so."""
    async for line in lines:
        yield line
        if line.startswith(start):
            return


def test_the_history_is_as_it_is_documented(tmp_path: Path) -> None:
    watched = Watched(tmp_path)

    async def scenario():
        async with watched.served() as client:
            empty = (await client.get("/api/live")).json()
            await until(lambda: watched.scene.gateway.asked == 1)
            watched.more.set()
            await until(lambda: watched.scene.gateway.asked == 2)
            return empty, await client.get("/api/live")

    empty, answer = asyncio.run(scenario())
    assert LiveView.model_validate(empty).seconds == []
    assert len(LiveView.model_validate(answer.json()).seconds) == 2
    assert answer.headers["content-type"] == "application/json"


def test_hints_are_as_they_are_documented(tmp_path: Path) -> None:
    scene = Advised()
    watched = Watched(tmp_path, scene)
    scene.board.put([told()])
    scene.batching = (tune(),)

    async def scenario():
        async with watched.served() as client:
            await client.get("/api/live")
            await until(lambda: watched.scene.gateway.asked == 1)
            watched.more.set()
            await until(lambda: watched.scene.gateway.asked == 2)
            return (await client.get("/api/live")).json()

    page = asyncio.run(scenario())
    view = LiveView.model_validate(page)
    assert view.pools["default"].desired == [3, 3]
    assert view.pools["default"].models["digits"].capacity == [131.0, 131.0]
    assert [(hint.kind, hint.about) for hint in view.hints] == [
        ("scaling", "default"),
        ("batching", "m@1"),
    ]


def test_each_event_is_one_sample(tmp_path: Path) -> None:
    watched = Watched(tmp_path)

    async def scenario():
        async with (
            watched.served() as client,
            client.stream("GET", "/api/live/events") as answer,
        ):
            lines = answer.aiter_lines()
            first = await data_of(lines)
            watched.more.set()
            return answer.headers, first, await data_of(lines)

    headers, first, second = asyncio.run(scenario())
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-store"
    assert (first["period"], second["period"]) == (None, 1.0)
    assert second["replicas"]["a"]["state"] == "up"


def test_a_stream_may_begin_with_the_history(tmp_path: Path) -> None:
    watched = Watched(tmp_path)

    async def scenario():
        async with (
            watched.served() as client,
            client.stream("GET", "/api/live/events") as one,
            client.stream("GET", "/api/live/events?history=true") as other,
        ):
            await data_of(one.aiter_lines())
            return [line async for line in _until(other.aiter_lines(), "data: ")]

    *_, named, data = asyncio.run(scenario())
    assert named == "event: history"
    LiveView.model_validate(json.loads(data.removeprefix("data: ")))


def test_who_leaves_is_a_viewer_no_more(tmp_path: Path) -> None:
    watched = Watched(tmp_path)

    async def scenario():
        async with watched.served() as client:
            async with client.stream("GET", "/api/live/events") as answer:
                await data_of(answer.aiter_lines())
                during = repr(watched.live)
            await until(lambda: "viewers=0" in repr(watched.live))
            return during

    assert "viewers=1" in asyncio.run(scenario())


def test_when_the_control_plane_stops_the_stream_ends_as_it_should(tmp_path: Path) -> None:
    watched = Watched(tmp_path)

    async def scenario():
        async with (
            watched.served() as client,
            client.stream("GET", "/api/live/events") as answer,
        ):
            lines = answer.aiter_lines()
            await data_of(lines)
            watched.running.cancel()
            return [line async for line in lines if line]

    assert asyncio.run(scenario()) == []


def test_too_many_viewers_are_told_so(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_VIEWERS):
            stack.enter_context(watched.live.watching())
        answer = send(watched.app, "GET", "/api/live/events")
    assert "200 already watch" in assert_error(answer, 503, "unavailable")["what"]


def test_without_a_key_nobody_watches_where_keys_are_needed(tmp_path: Path) -> None:
    watched = Watched(tmp_path, needs_key=lambda guarded: True)
    for path in ("/api/live", "/api/live/events"):
        assert_error(send(watched.app, "GET", path), 401, "unauthenticated")


def test_a_stream_without_samples_is_kept_alive() -> None:
    async def scenario():
        sent = events(Viewer(), heartbeat=0.001)
        return [await anext(sent) for _ in range(3)]

    assert asyncio.run(scenario())[1:] == [b": nothing yet\n\n"] * 2


def test_a_stream_ends_after_its_time_so_that_the_key_is_looked_at_again() -> None:
    async def scenario():
        viewer = Viewer()
        viewer.give(b"{}")
        return [piece async for piece in events(viewer, longest=-1.0)]

    assert asyncio.run(scenario())[1:] == [b"data: {}\n\n"]
