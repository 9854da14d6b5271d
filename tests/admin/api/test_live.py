"""The live data over HTTP, on a real socket: columns of what was, and a stream of what is."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
from admin.api.admin_scene import application, assert_error, plane, send
from builders import until
from control.live.advised import Advised, told, tune
from control.live.watched import Scene

from serve.admin.api.live import LiveView, events
from serve.app.http_server import HttpServer
from serve.control.live.sampler import MOST_VIEWERS, LiveSampler, Viewer


class Watched:
    """An admin application whose sampler waits for `more` before each further sample."""

    def __init__(self, folder: Path, scene: Scene | None = None, **about) -> None:
        self.scene = scene or Scene()
        self.more = asyncio.Event()
        self.live = LiveSampler(self.scene.sources, clock=self.scene.clock, sleep=self._sleep)
        self.app = application(plane(folder), live=self.live, **about)

    async def _sleep(self, seconds: float) -> None:
        await self.more.wait()
        self.more.clear()
        self.scene.clock.now += 1.0

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[httpx2.AsyncClient]:
        """On a port, while the sampler runs."""
        with socket.create_server(("127.0.0.1", 0)) as port:
            server = HttpServer(self.app, timeout_graceful_shutdown=20)
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


def test_the_history_is_as_it_is_documented(tmp_path: Path) -> None:
    scene = Advised()
    watched = Watched(tmp_path, scene)
    scene.board.put([told()])
    scene.batching = (tune(),)

    async def scenario():
        async with watched.served() as client:
            empty = (await client.get("/api/live")).json()
            await until(lambda: watched.scene.gateway.asked == 1)
            watched.more.set()
            await until(lambda: watched.scene.gateway.asked == 2)
            return empty, (await client.get("/api/live")).json()

    empty, page = asyncio.run(scenario())
    assert LiveView.model_validate(empty).seconds == []
    view = LiveView.model_validate(page)
    assert len(view.seconds) == 2
    assert view.pools["default"].desired == [3, 3]
    assert view.pools["default"].models["digits"].capacity == [131.0, 131.0]
    hints = [(hint.kind, hint.about) for hint in view.hints]
    assert hints == [("scaling", "default"), ("batching", "m@1")]


def test_each_event_is_one_sample_and_the_first_may_be_the_history(tmp_path: Path) -> None:
    watched = Watched(tmp_path)

    async def scenario():
        async with watched.served() as client:
            async with (
                client.stream("GET", "/api/live/events") as answer,
                client.stream("GET", "/api/live/events?history=true") as other,
            ):
                lines, history = answer.aiter_lines(), other.aiter_lines()
                first = await data_of(lines)
                while not (named := await anext(history)).startswith("event: "):
                    pass
                whole = await data_of(history)
                watched.more.set()
                second, during = await data_of(lines), repr(watched.live)
            await until(lambda: "viewers=0" in repr(watched.live))
            return answer.headers, first, second, named, whole, during

    headers, first, second, named, whole, during = asyncio.run(scenario())
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-store"
    assert (first["period"], second["period"]) == (None, 1.0)
    assert second["replicas"]["a"]["state"] == "up"
    assert named == "event: history" and LiveView.model_validate(whole)
    assert "viewers=2" in during


def test_too_many_viewers_are_told_so(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_VIEWERS):
            stack.enter_context(watched.live.watching())
        answer = send(watched.app, "GET", "/api/live/events")
    assert "already 200 viewers" in assert_error(answer, 503, "unavailable")["what"]


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
