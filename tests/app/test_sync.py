"""The agent beside a Triton, against a real admin API and a real storage."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from admin.api.admin_scene import SECRET, internal_api
from app.synchronising import synchronise
from control.delivering_scene import MODEL, drafts, publish, tree
from forking import Forked
from loops import in_loop
from object_store import ObjectStore

from serve.app.http_server import HttpServer
from serve.app.ports import listener
from serve.app.sync import Orders, keep
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.agents import AgentDelivery
from serve.control.versions import PublishedVersion
from serve.core.errors import CannotStart

BIG = {"model.onnx": bytes(range(256)) * 16384}  # 4 MiB
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
    async with asyncio.timeout(within):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@in_loop
async def test_what_is_published_comes_and_is_reported_and_goes_again(scene: Scene) -> None:
    one, two = await scene.publish(), await scene.publish(number=2)
    async with scene.control(), scene.agent():
        await scene.agents.deliver([one], ())
        await until(lambda: scene.agents.has("gpu-1", one))
        assert tree(scene.repository)["digits/1/model.onnx"] == MODEL["model.onnx"]
        await scene.agents.deliver([two], [("digits", 1)])
        await until(lambda: scene.agents.has("gpu-1", two))
        assert "digits/1/model.onnx" in tree(scene.repository)
        await scene.agents.deliver([two], ())
        await until(lambda: "digits/1/model.onnx" not in tree(scene.repository))
        assert scene.agents.has("gpu-1", two) and not scene.agents.has("gpu-1", one)
        assert any("fetched digits version 1" in line for line in scene.said)
        await until(lambda: "removed digits version 1" in scene.said)


@in_loop
async def test_an_agent_that_can_reach_the_storage_links_its_blobs(scene: Scene) -> None:
    one = await scene.publish()
    file = (await scene.storage.manifest("digits", 1)).layout.version[-1]
    async with scene.control(), scene.agent(storage=str(scene.folder / "storage")):
        await scene.agents.deliver([one], ())
        await until(lambda: scene.agents.has("gpu-1", one))
    blob = scene.storage.local_path(file.sha256)
    assert blob is not None and blob.samefile(scene.repository / "digits" / file.path)
    assert scene.blobs.starts == []


@in_loop
async def test_without_a_control_plane_everything_stays_and_it_is_found_again(scene: Scene) -> None:
    one, two = await scene.publish(), await scene.publish(number=2)
    async with scene.control(one):
        pass
    async with scene.agent() as agent:
        await until(lambda: any("does not respond" in line for line in scene.said))
        async with scene.control(one):
            await until(lambda: scene.agents.has("gpu-1", one))
        before = tree(scene.repository)
        await until(lambda: sum("does not respond" in line for line in scene.said) == 2)
        assert tree(scene.repository) == before and not agent.done()
        async with scene.control(one, two):
            await until(lambda: scene.agents.has("gpu-1", two))
        assert scene.said.count("the control plane responds again") == 2


@in_loop
async def test_a_control_plane_that_knows_nothing_yet_empties_no_folder(scene: Scene) -> None:
    one = await scene.publish()
    async with scene.control(one), scene.agent():
        await until(lambda: scene.agents.has("gpu-1", one))
    transfers = len(scene.blobs.starts)
    async with scene.control(), scene.agent():
        await until(lambda: scene.said[-1].startswith("syncing"))
        assert await scene.agents.poll("", 0.3) is None
        assert "digits/1/model.onnx" in tree(scene.repository)
        await scene.agents.deliver([one], ())
        await until(lambda: scene.agents.has("gpu-1", one))
    assert len(scene.blobs.starts) == transfers


@in_loop
async def test_a_damaged_blob_is_fetched_twice_told_and_never_shown_to_triton(scene: Scene) -> None:
    one, other = await scene.publish(), await scene.publish("other", 1, {"model.onnx": b"o"})
    file = (await scene.storage.manifest("digits", 1)).layout.version[-1]
    blob = scene.storage.local_path(file.sha256)
    assert blob is not None
    blob.chmod(0o644)
    blob.write_bytes(b"x" * file.size)
    async with scene.control(), scene.agent():
        await scene.agents.deliver([one, other], ())
        await until(lambda: "damaged" in scene.agents.problem("gpu-1", one))
        await until(lambda: scene.agents.has("gpu-1", other))
        assert not any(path.startswith("digits/1") for path in tree(scene.repository))
        blob.write_bytes(MODEL["model.onnx"])
        await until(lambda: scene.agents.has("gpu-1", one))


@in_loop
async def test_an_agent_that_is_killed_goes_on_where_it_was(scene: Scene) -> None:
    small, big = await scene.publish(number=1), await scene.publish(number=2, files=BIG)
    async with scene.control():
        await scene.agents.deliver([small], ())
        async with scene.process() as agent:
            await until(lambda: scene.agents.has("gpu-1", small))
            scene.blobs.gate.clear()
            await scene.agents.deliver([small, big], ())
            await until(lambda: any(part.stat().st_size for part in scene.parts))
            agent.send_signal(signal.SIGKILL)
            await agent.wait()
        assert {p for p in tree(scene.repository) if p.endswith("onnx")} == {"digits/1/model.onnx"}
        assert drafts(scene.repository) != []
        scene.blobs.gate.set()
        async with scene.process():
            await until(lambda: scene.agents.has("gpu-1", big))
        assert scene.blobs.starts[-1] > 0
        assert tree(scene.repository)["digits/2/model.onnx"] == BIG["model.onnx"]
        assert drafts(scene.repository) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@in_loop
async def test_a_signal_ends_it_at_once_even_in_the_middle_of_a_transfer(
    scene: Scene, number: signal.Signals
) -> None:
    scene.blobs.gate.clear()
    async with scene.control(), scene.process() as agent:
        await scene.agents.deliver([await scene.publish(files=BIG)], ())
        await until(lambda: scene.blobs.starts != [])
        agent.send_signal(number)
        async with asyncio.timeout(5):
            assert await agent.wait() == 0
        assert "Traceback" not in agent.told and "fetching digits version 1" in agent.told
        scene.blobs.gate.set()


@in_loop
async def test_a_newer_page_ends_the_work_on_the_older_one(scene: Scene) -> None:
    big, other = await scene.publish(files=BIG), await scene.publish("other", 1, {"m": b"o"})
    async with scene.control(), scene.agent():
        scene.blobs.gate.clear()
        await scene.agents.deliver([big], ())
        await until(lambda: scene.blobs.starts != [])
        scene.blobs.gate.set()
        await scene.agents.deliver([other], ())
        await until(lambda: scene.agents.has("gpu-1", other))
        assert not scene.agents.has("gpu-1", big)


@in_loop
async def test_a_folder_has_one_agent(scene: Scene) -> None:
    async with scene.control(), scene.agent():
        await until(lambda: scene.said != [])
        async with scene.agent() as second:
            await asyncio.wait((second,))
            error = second.exception()
    assert isinstance(error, CannotStart) and "another agent already uses" in str(error)


@in_loop
async def test_a_wrong_secret_is_told_in_words(scene: Scene) -> None:
    async with scene.control(), scene.agent(secret="another-secret-altogether"):
        await until(lambda: any("SERVEGATE_SECRET" in line for line in scene.said))


@in_loop
async def test_an_agent_fetches_from_a_bucket_and_keeps_what_it_fetched(
    s3: ObjectStore, tmp_path: Path
) -> None:
    url = s3.bucket()
    scene = Scene(tmp_path, ArtifactStorage.of(url, **s3.config))
    one = await scene.publish()
    async with scene.control(one), scene.process("--storage", url, **s3.environment):
        await until(lambda: scene.agents.has("gpu-1", one))
        assert scene.blobs.starts == []
        assert tree(scene.repository)["digits/1/model.onnx"] == MODEL["model.onnx"]
        await scene.agents.deliver([], ())
        await until(lambda: tree(scene.repository) == {})
        for blob in (await scene.storage.manifest("digits", 1)).files:
            await scene.storage.remove_blob(blob.sha256)
        await scene.agents.deliver([one], ())
        await until(lambda: scene.agents.has("gpu-1", one))
