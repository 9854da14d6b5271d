"""A control plane whose hints are by script, for a browser: no Triton, and a clock that runs fast.

The sampler, the board, the API and the pages are the real ones. The server runs in a thread of its
own, because Playwright keeps a loop open in the tests'.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from admin.api.admin_scene import application, plane
from admin.web.web_scene import with_pages
from control.live.advised import Advised

from serve.app.http_server import HttpServer
from serve.control.live.sampler import LiveSampler


class Hinted:
    """What people look at. `then` is called before each sample, with how many there were.

    `pace`: seconds of ours for one of theirs.
    """

    def __init__(self, folder: Path, pace: float) -> None:
        self._pace = pace
        self.scene = Advised()
        self.then: Callable[[int], None] = lambda count: None
        self._count = 0
        live = LiveSampler(self.scene.sources, clock=self.scene.clock, sleep=self._sleep)
        self._app, self._live = with_pages(application(plane(folder), live=live)), live
        self.url = ""

    async def serve(
        self, port: socket.socket, started: threading.Event, ended: asyncio.Event
    ) -> None:
        """Until `ended`."""
        server = HttpServer(self._app, timeout_graceful_shutdown=1)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[port]))
            sampling = tasks.create_task(self._live.run())
            while not server.started:  # noqa: ASYNC110 - uvicorn tells it in no other way
                await asyncio.sleep(0.01)
            started.set()
            await ended.wait()
            sampling.cancel()
            server.should_exit = True
            await serving

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(self._pace)
        self.scene.clock.now += 1.0
        self.scene.wall.now += 1.0
        self._count += 1
        self.then(self._count)


@contextlib.contextmanager
def hinted(folder: Path, *, pace: float = 0.1) -> Iterator[Hinted]:
    """One that is served while the block runs."""
    made: list[Hinted] = []
    started, loops = threading.Event(), []

    def run(port: socket.socket) -> None:
        made.append(Hinted(folder, pace))

        async def serve() -> None:
            ended = asyncio.Event()
            loops.append((asyncio.get_running_loop(), ended))
            await made[0].serve(port, started, ended)

        asyncio.run(serve())

    with socket.create_server(("127.0.0.1", 0)) as port:
        thread = threading.Thread(target=run, args=(port,))
        thread.start()
        try:
            assert started.wait(30)
            made[0].url = f"http://localhost:{port.getsockname()[1]}"
            yield made[0]
        finally:
            for loop, ended in loops:
                loop.call_soon_threadsafe(ended.set)
            thread.join(30)
