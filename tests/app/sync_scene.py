"""A control plane whose Tritons have agents: over real HTTP, with a real storage in a folder."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from admin.api.admin_scene import SECRET, internal_api
from app.synchronising import synchronise
from control.delivering_scene import MODEL, publish
from forking import Forked

from serve.app.http_server import HttpServer
from serve.app.ports import listener
from serve.app.sync import Orders, keep
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.agents import AgentDelivery
from serve.control.versions import PublishedVersion

LABELS = {"labels.txt": b"zero\none\n"}


class Gated:
    """A storage's blobs. While `gate` is closed, each transfer stops after its first bytes."""

    def __init__(self, storage: ArtifactStorage) -> None:
        self.storage = storage
        self.starts: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def stream(self, sha256: str, start: int = 0) -> AsyncIterator[bytes]:
        self.starts.append(start)
        first = True
        async for piece in self.storage.stream(sha256, start):
            half = len(piece) // 2 if first else 0
            yield piece[:half]
            await self.gate.wait()
            yield piece[half:]
            first = False


class Scene:
    """One control plane, and agents that the test starts. Everything is in one folder."""

    def __init__(self, folder: Path, storage: ArtifactStorage | None = None) -> None:
        self.folder = folder
        self.storage = storage or ArtifactStorage.of(str(folder / "storage"))
        self.blobs = Gated(self.storage)
        self.agents = AgentDelivery(self.storage)
        self.repository = folder / "repository"
        self.said: list[str] = []
        self.port = 0

    @property
    def parts(self) -> tuple[Path, ...]:
        """What has come of blobs that are being fetched."""
        return tuple((self.repository / ".delivery/cache/parts").glob("*"))

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def orders(self, **changes: Any) -> Orders:
        given = {
            "url": self.url,
            "replica": "gpu-1",
            "folder": self.repository,
            "secret": SECRET,
            "cache_bytes": 1 << 20,
        }
        return Orders(**{**given, **changes})

    async def publish(
        self, model: str = "digits", number: int = 1, files: Mapping[str, bytes] = MODEL
    ) -> PublishedVersion:
        """Put a version into the storage; gives its record."""
        return await publish(self.storage, model, number, files=files, beside=LABELS)

    @contextlib.asynccontextmanager
    async def control(self, *wanted: PublishedVersion) -> AsyncIterator[None]:
        """A new control plane, on the same port each time; it knows what is wanted, if anything."""
        self.agents = AgentDelivery(self.storage)
        if wanted:
            await self.agents.deliver(wanted, ())
        app = internal_api(self.agents, self.blobs)
        bound = listener("127.0.0.1", self.port)
        self.port = bound.getsockname()[1]
        server = HttpServer(app, timeout_graceful_shutdown=1)
        serving = asyncio.create_task(server.serve([bound]))
        try:
            yield
        finally:
            server.should_exit = True
            await self.agents.close()
            await serving
            bound.close()

    @contextlib.asynccontextmanager
    async def agent(self, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
        orders = self.orders(**changes)
        work = keep(orders, say=self.said.append, trust=ssl.create_default_context)
        running = asyncio.create_task(work)
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.wait((running,))

    @contextlib.asynccontextmanager
    async def process(self, *options: str, **environment: str) -> AsyncIterator["Agent"]:
        told = self.folder / "told"
        words = ("--admin-url", self.url, "--replica", "gpu-1", "--folder", str(self.repository))
        variables = {"SERVEGATE_SECRET": SECRET, **environment}
        with Forked(synchronise, self.folder, told, [*words, *options], variables) as running:
            yield Agent(running, told)


class Agent:
    """The command's process, and what it has told people."""

    def __init__(self, running: Forked, told: Path) -> None:
        self._running = running
        self._told = told
        self.send_signal = running.send_signal

    async def wait(self) -> int:
        return await asyncio.to_thread(self._running.wait)

    @property
    def told(self) -> str:
        return self._told.read_text()


async def until(reached: Callable[[], bool], *, within: float = 20.0) -> None:
    """Wait for what other processes and threads do; fail when it does not come in time."""
    async with asyncio.timeout(within):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
