"""Evaluations over a control plane in memory and a gateway that answers as a test wants."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
from builders import CONFIG, ControlPlane, replica, write_model

from serve.control.artifacts.folder import FolderObjects
from serve.control.evaluating.datasets import Datasets
from serve.control.evaluating.evaluation import Evaluation, Request
from serve.control.evaluating.evaluations import Evaluations
from serve.control.evaluating.rows import Fresh
from serve.control.gateway import Answered
from serve.core.errors import BadRequest, ServegateError
from serve.tensors.giving import Form, Given
from serve.tensors.metadata import Metadata, TensorSpec

ROWS = 60


class Scripted:
    """A gateway: version 1 is right, version 2 says 0 for every seventh row.

    `broken` are rows for which version 2 answers an error; `gate` holds every call back while it is
    closed, and `reached` is set once `hold_after` calls have come.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.broken: set[int] = set()
        self.error: ServegateError | None = None
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.hold_after = 0
        self.outputs = {"scores": TensorSpec("scores", "FP32", (-1, 3))}

    async def metadata(self, model: str, selector: str) -> Metadata:
        return Metadata({"x": TensorSpec("x", "FP32", (-1, 2))}, self.outputs)

    async def infer(self, model: str, selector: str, inputs: Any, **options: Any) -> Answered:
        rows = inputs["x"]
        self.calls.append((selector, len(rows)))
        if self.hold_after and len(self.calls) >= self.hold_after:
            self.reached.set()
            await self.gate.wait()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if selector == "2" and self.broken & {int(row[0]) for row in rows}:
            raise BadRequest("this row breaks the model")
        scores = np.zeros((len(rows), 3), dtype=np.float32)
        for place, (number, label) in enumerate(rows.astype(int)):
            told = 0 if selector == "2" and number % 7 == 0 else label
            scores[place] = 0.1
            scores[place, told] = 0.8
        return Answered({"scores": scores}, selector, "pinned", 1, 0.002 * len(rows))


class Scene:
    """The parts; the dataset `three` has `ROWS` rows [number, label] with labels 0 to 2."""

    def __init__(self, folder: Path, gateway: Scripted | None = None) -> None:
        self.gateway = gateway or Scripted()
        folder.mkdir(exist_ok=True)
        self.plane = ControlPlane(folder, replicas=[replica("a")])
        self.folder = folder
        self.start()

    def start(self) -> None:
        """As a new process does."""
        folder = self.folder
        self.objects = FolderObjects(folder / "storage")
        ids = (f"e{number}" for number in count(1))
        self.datasets = Datasets(
            objects=self.objects, scratch=folder / "scratch", wall=self.plane.wall
        )
        self.evaluations = Evaluations(
            objects=self.objects,
            datasets=self.datasets,
            gateway=cast(Any, self.gateway),
            models=self.plane.models,
            wall=self.plane.wall,
            new_id=lambda: next(ids),
        )

    async def begin(self) -> "Scene":
        write_model(self.plane.repository, "m", 1, 2, 3, config=f"{CONFIG}max_batch_size: 16\n")
        await self.plane.begin(a={"m": (1, 2)})
        await self.datasets.add("three", three(), source="test", author="ann")
        return self

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator["Scene"]:
        """Evaluations are worked off until the process ends."""
        working = asyncio.create_task(self.evaluations.run())
        try:
            yield self
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def ended(self, identity: str) -> Evaluation:
        """One evaluation, once nothing more happens to it by itself."""
        async with asyncio.timeout(20):
            async for one in self.evaluations.watch(identity):
                last = one
        return last

    async def evaluate(self, **asked: Any) -> Evaluation:
        begun = await self.evaluations.begin(Request("m", "three", **asked), "ann")
        return await self.ended(begun.id)


def three(rows: int = ROWS) -> list[Fresh]:
    return [
        Fresh(
            str(number % 3),
            {"x": npy([number, number % 3])},
            name=f"row-{number}",
            slices={"half": "first" if number < rows // 2 else "second"},
        )
        for number in range(rows)
    ]


def npy(values: Any, dtype: Any = np.float32) -> Given:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype=dtype))
    return Given(Form.NPY, file.getvalue())


@contextlib.asynccontextmanager
async def evaluating(folder: Path, **options: Any) -> AsyncIterator[Scene]:
    """A scene whose evaluations are worked off."""
    scene = await Scene(folder, **options).begin()
    async with scene.working():
        yield scene
