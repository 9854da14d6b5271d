"""A desk for those who try versions: a real storage and control plane, and a scripted gateway."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from builders import ControlPlane

from serve.control.artifacts.storage import Storage
from serve.control.gateway import Answered, Place
from serve.control.trying.adding import AddedCases
from serve.control.trying.asking import Ask, Offered
from serve.control.trying.desk import TryDesk, Witnesses
from serve.control.trying.examples import Examples
from serve.control.trying.sides import Sides
from serve.control.trying.tries import Tries
from serve.control.trying.versions import TriedVersions
from serve.tensors.metadata import Metadata, TensorSpec

ROW = b"[[1, 2]]"


def metadata(datatype: str = "FP32", name: str = "x") -> Metadata:
    x, y = TensorSpec(name, datatype, (-1, 2)), TensorSpec("y", datatype, (-1, 2))
    return Metadata({name: x}, {"y": y})


class ScriptedGateway:
    """Stands for `Gateway`: version n answers its input times n, unless something is scripted.

    `late` is how many times statistics are asked after a call before it is counted.
    """

    def __init__(self) -> None:
        self.place = Place("http://127.0.0.1:8000", "127.0.0.1:8001", "")
        self.shows_key = False
        self.described: dict[str, Metadata] = {}
        self.scripted: dict[str, Exception] = {}
        self.answers: dict[str, Mapping[str, Any]] = {}
        self.named: dict[str, int] = {"": 2}
        self.asked: list[tuple[str, Mapping[str, Any], str]] = []
        self.late = 0
        self._counted: dict[int, int] = {}
        self._waiting: list[tuple[int, int]] = []

    async def metadata(self, model: str, selector: str) -> Metadata:
        if selector in self.scripted:
            raise self.scripted[selector]
        return self.described.get(selector, metadata())

    async def infer(
        self, model: str, selector: str, inputs: Any, *, datatypes: Any, via: str
    ) -> Answered:
        self.asked.append((selector, inputs, via))
        if f"call {selector}" in self.scripted:
            raise self.scripted[f"call {selector}"]
        version = int(selector) if selector.isdigit() else self.named[selector]
        outputs = self.answers.get(selector)
        if outputs is None:
            outputs = {"y": next(iter(inputs.values())) * np.float32(version)}
        self._waiting.append((version, self.late))
        kinds = dict.fromkeys(outputs, next(iter(datatypes.values())))
        return Answered(outputs, str(version), "number", 7, 0.01, kinds)

    async def statistics(self, model: str, version: int) -> Mapping[str, Any]:
        for number, late in [one for one in self._waiting if one[0] == version]:
            self._waiting.remove((number, late))
            if late:
                self._waiting.append((number, late - 1))
            else:
                self._counted[version] = self._counted.get(version, 0) + 1
        calls = self._counted.get(version, 0)
        parts = ("success", "queue", "compute_input", "compute_infer", "compute_output")
        return {
            "inference_stats": {one: {"count": calls, "ns": calls * 1_000_000} for one in parts}
        }


class Desk:
    """The desk, and what it works on; model `m` with versions 1 to 3 must be known to `plane`."""

    def __init__(self, plane: ControlPlane, folder: Path, *, refuses: str = "") -> None:
        self.gateway = ScriptedGateway()
        self.storage = Storage.of(str(folder / "storage"))
        self.pauses: list[float] = []
        self.refuses = refuses
        self.drawn = 0
        added = AddedCases(
            plane.store,
            self.storage,
            decisions=lambda: plane.decisions,
            reload=plane.reload,
            refuses=self._refuses,
            collecting=asyncio.Lock(),
            wall=plane.wall,
        )
        self.recorded = TriedVersions(plane.models, added)
        gateway: Any = self.gateway
        self.desk = TryDesk(
            Tries(
                self.storage.objects,
                Sides(gateway, self.recorded, pause=self._pause),
                Examples(self.recorded),
                wall=plane.wall,
                draw=self._draw,
            ),
            self.recorded,
            added,
            Witnesses(plane.models, plane.fleet, self._judge),
            gateway,
        )

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def _refuses(self, version: Any, case: Any) -> str:
        return self.refuses

    async def _judge(self, replica: Any, version: Any, contract: Any) -> str:
        return self.refuses

    def _draw(self) -> str:
        self.drawn += 1
        return f"{self.drawn:08x}"


def ask(a: str = "1", b: str | None = None, **more: Any) -> Ask:
    """A try of model `m` with one row, unless something else is said."""
    return Ask(**{"model": "m", "a": a, "b": b, "inputs": {"x": Offered("json", ROW)}, **more})
