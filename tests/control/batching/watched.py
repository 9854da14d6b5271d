"""A control plane whose versions are watched: a test says what replicas have counted."""

import asyncio
from pathlib import Path
from typing import Any

from builders import Clock, ControlPlane, replica, write_model
from control.batching.situations import Sizes, counted

from serve.control.batching.hints import BatchingHints
from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import BatchingObserver, Counted
from serve.control.batching.overview import Overview, Overviews
from serve.control.batching.rounds import Rounds
from serve.control.revision import CONFIGURATION
from serve.control.storage.store import StoreEdit
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.config import Configuration
from serve.triton.metrics import ReplicaScrape

OFF = 'backend: "onnxruntime"\nmax_batch_size: 8\nversion_policy { all { } }\n'
CONFIG = OFF + "dynamic_batching { }\n"


class Scene:
    """A control plane, of whose replicas a test says what they have counted and configured."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.clock = Clock()
        self.told: dict[str, Counted] = {}
        self.configurations: dict[str, Configuration] = {}
        self.asked: list[tuple[str, str]] = []
        self.observer = BatchingObserver(plane.fleet, self, clock=self.clock)
        self.hints = BatchingHints(wall=plane.wall)
        latencies = Latencies(300.0)
        self.rounds = Rounds(self.observer, latencies, self, clock=self.clock)
        self.overviews = Overviews(
            *(plane.models, plane.fleet, plane.publisher, self.observer, latencies, self.hints),
            ask=self.ask,
            refresh=self.refresh,
        )
        self.refreshed = 0

    async def counters(self, replica: Replica) -> Counted:
        return self.told[replica.name]

    async def readings(self, replica: Replica) -> ReplicaScrape | None:
        return None

    async def metrics(self) -> str:
        return "# nothing\n"

    async def ask(self, replica: Replica, name: str) -> Configuration:
        self.asked.append((replica.name, name))
        if replica.name not in self.configurations:
            raise Unavailable("it does not answer")
        return self.configurations[replica.name]

    async def refresh(self) -> None:
        self.refreshed += 1

    def look(self, sizes: Sizes, *, name: str = "m", version: int = 1, **others: Any) -> None:
        """Two rounds, 100 s apart: nothing was counted before, and this after."""
        for told in ({}, {(name, version): counted(sizes, **others)}):
            self.told = {"a": told, "b": {}}
            asyncio.run(self.rounds.refresh())
            self.clock.now += 100

    def show(self, model: str = "m", number: int = 1) -> Overview:
        return asyncio.run(self.overviews.show(model, number))


def plain(folder: Path, config: str | None = CONFIG) -> Scene:
    """Versions 1 and 2 of `m` lie in a plain folder; replica `a` holds version 1."""
    made = ControlPlane(folder, replicas=[replica("a"), replica("b")])
    write_model(made.repository, "m", 1, 2, config=config)
    return Scene(asyncio.run(made.begin(a={"m": (1,)})))


def decide(plane: ControlPlane, name: str, body: dict[str, Any]) -> None:
    """Somebody changes the configuration under a name in Triton."""

    async def write() -> None:
        await plane.store.apply_all([StoreEdit(CONFIGURATION, name, body, "ada")])
        await plane.reload()
        await plane.publisher.refresh()

    asyncio.run(write())
