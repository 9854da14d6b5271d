"""A scene for publications: a real store, storage and uploads; a scripted reader and quarantine."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from builders import Clock, ControlPlane, replica

from serve.control.artifacts.contents import Contents
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.models import By
from serve.control.publication.checks import Checker
from serve.control.publication.ensembles import PinnableVersions
from serve.control.publication.garbage import Heap
from serve.control.publication.pending_labels import Pending
from serve.control.publication.pipeline import DefaultRoutes, Pipeline
from serve.control.publication.publications import PublicationRequest, Publications
from serve.control.publication.records import Records
from serve.control.publication.retention import Retention
from serve.control.publication.trials import Trials
from serve.control.uploads.uploads import Uploads
from serve.control.versions import PublishedVersion
from serve.core.flavours import UNKNOWN, Machine
from serve.core.replicas import Replica
from serve.core.routes import Split
from serve.core.versions import VersionFile
from serve.tensors.contracts import Contract
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.triton.canonical import canonical, canonical_text
from serve.triton.quarantine import QuarantineOrder, QuarantineTrial

T = TypeVar("T")
ADA = By("ada")
CONFIG = canonical_text(
    canonical(
        """
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""
    )
)
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 8
input { name: "a" data_type: TYPE_FP32 dims: 4 }
output { name: "b" data_type: TYPE_FP32 dims: 2 }
ensemble_scheduling { step {
  model_name: "%s" model_version: %d
  input_map { key: "x" value: "a" } output_map { key: "y" value: "b" }
} }
"""
SIGNATURE = ModelSignature(
    "onnx", (ModelTensor("x", "FP32", (-1, 4)),), (ModelTensor("y", "FP32", (-1, 2)),)
)


def files(model: bytes = b"a model", *, config: str = CONFIG, **more: bytes) -> dict[str, bytes]:
    """What is uploaded; without a configuration when that is empty."""
    page = {"config.pbtxt": config.encode()} if config else {}
    return page | {"1/model.onnx": model} | more


def ensemble(model: str, number: int = -1) -> dict[str, bytes]:
    """An ensemble around one model."""
    return {"config.pbtxt": (ENSEMBLE % (model, number)).encode(), "1/empty": b""}


class FakeQuarantine:
    """Stands for `Quarantine`: notes what it is given, and fails as scripted."""

    def __init__(self) -> None:
        self.orders: list[tuple[QuarantineOrder, ...]] = []
        self.trees: list[list[str]] = []
        self.fails: Exception | None = None

    @contextlib.asynccontextmanager
    async def trial(
        self, repository: Path, orders: Sequence[QuarantineOrder]
    ) -> AsyncIterator[QuarantineTrial]:
        self.orders.append(tuple(orders))
        self.trees.append(sorted(_tree(repository)))
        if self.fails:
            raise self.fails
        yield QuarantineTrial(replica("quarantine"), 1000)


class Failing:
    """Passes everything on to a storage, but fails at one method as long as an error is set."""

    def __init__(self, storage: ArtifactStorage) -> None:
        self._storage = storage
        self.errors: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        error = self.errors.get(name)
        if error is None:
            return getattr(self._storage, name)

        async def fail(*_: object, **__: object) -> None:
            raise error

        return fail


class Scene:
    """A control plane that publishes. Everything is in `folder`: a second scene is a restart.

    What serves is scripted in `serving`; with `serving_now` it is what the control plane sees.
    """

    def __init__(
        self,
        folder: Path,
        *,
        allow_code: bool = False,
        tried: bool = True,
        serving_now: bool = False,
        machine: Machine = UNKNOWN,
    ) -> None:
        self.plane = ControlPlane(folder)
        self.wall = self.plane.wall
        self.clock = Clock()
        self.storage = ArtifactStorage.of(str(folder / "storage"))
        self.failing = Failing(self.storage)
        self.uploads = Uploads(folder / "uploads", self.storage, wall=self.wall)
        self.records = Records(
            self.plane.store,
            decisions=lambda: self.plane.decisions,
            reload=self.plane.reload,
            publish=self.plane.publisher.committed,
            wall=self.wall,
        )
        self.serving: dict[str, int] = {}
        self.ready: set[tuple[str, int]] = set()
        self.set: list[str] = []
        self.refuses: Exception | None = None
        self.quarantine = FakeQuarantine()
        self.wrong = ""
        self.signature: ModelSignature | Exception = SIGNATURE
        self.work = folder / "publishing"
        self.work.mkdir(exist_ok=True)
        loadables = lambda: self.plane.inventory.loadables  # noqa: E731
        parts = PinnableVersions(lambda: self.plane.decisions, loadables, self.serving.get)
        holding = DefaultRoutes(
            self.records, self.plane.models.serving_now if serving_now else self.serving.get
        )
        self.pipeline = Pipeline(
            self.records,
            self.failing,  # type: ignore[arg-type]
            self.uploads,
            checker=Checker(
                Contents(self.storage),
                parts,
                folder=self.work,
                read_model=self._read,
                allow_code=allow_code,
            ),
            trials=Trials(
                self.storage,
                self.quarantine if tried else None,  # type: ignore[arg-type]
                parts,
                folder=self.work,
                plain=self.plane.repository,
                judge=self._judge,
                machine=machine,
            ),
            holding=holding,
            has_plain=self.plane.inventory.has_plain,
            folder=self.work,
            clock=self.clock,
        )
        self.publications = Publications(
            self.records, self.pipeline, plain_versions=self.plane.inventory.plain_versions
        )
        self.retention = Retention(
            self.records,
            self.storage,
            Heap(self.records, self.storage, self.uploads),
            parts=parts,
            holding=holding,
            loadables=loadables,
            referring=self.plane.models.referring,
            keep=10,
        )
        self.pending = Pending(
            self.records,
            ready_enough=lambda model, number: (model, number) in self.ready,
            set_label=self._set_label,
            set_route=self._set_route,
        )

    async def begin(self) -> "Scene":
        """Read what is stored; replica `a` holds nothing."""
        await self.plane.begin(a={})
        return self

    async def push(
        self,
        model: str,
        given: Mapping[str, bytes],
        ask: PublicationRequest | None = None,
        by: By = ADA,
    ) -> tuple[PublishedVersion, bool]:
        """Upload and commit; nothing is worked off yet."""
        listed = []
        for path, data in given.items():
            size, sha256 = await self.storage.add_bytes(data)
            listed.append(VersionFile(path, size, sha256))
        upload = await self.uploads.begin(model, listed, by.author)
        return await self.publications.begin(upload, ask or PublicationRequest(), by)

    async def publish(
        self, model: str, given: Mapping[str, bytes], ask: PublicationRequest | None = None
    ) -> PublishedVersion:
        """Upload, commit, and go as far as it goes."""
        version, _ = await self.push(model, given, ask)
        await self.pipeline.round()
        return self.version(model, version.number)

    def version(self, model: str = "m", number: int = 1) -> PublishedVersion:
        return self.records.get(model, number)

    async def revisions(self, kind: str, key: str) -> list[Mapping[str, Any]]:
        """What was changed of one thing, the oldest first."""
        return list(reversed(await self.plane.store.history(kind=kind, key=key)))

    async def _read(self, path: Path) -> ModelSignature:
        assert await asyncio.to_thread(path.exists), path
        if isinstance(self.signature, Exception):
            raise self.signature
        return self.signature

    async def _judge(self, one: Replica, version: PublishedVersion, contract: Contract) -> str:
        return self.wrong

    async def _set_label(self, model: str, label: str, number: int, by: By) -> None:
        if self.refuses:
            raise self.refuses
        self.set.append(f"{by.author}: {model}:{label}={number}")

    async def _set_route(self, model: str, split: Split, by: By) -> None:
        if self.refuses:
            raise self.refuses
        self.set.append(f"{by.author}: {model} {dict(split.shares)}")


def play(scene: Scene, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Begin, and do something."""

    async def run() -> T:
        await scene.begin()
        return await work()

    return asyncio.run(run())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _tree(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith("."):
            found.append(name)
    return found
