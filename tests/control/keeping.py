"""A scene for the keeper of one replica: a fake Triton, a repository, and rounds of its life."""

import asyncio
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from builders import ControlPlane, replica

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.control.reconciliation.busy_replicas import Steering
from serve.control.reconciliation.reconciler import Looks, ReplicaKeeper
from serve.control.versions import PublishedVersion
from serve.core.errors import Unavailable
from serve.core.flavours import UNKNOWN, Machine
from serve.core.replicas import Replica
from serve.triton import config as triton_config
from serve.triton.control import IndexEntry, NotExplicit

from .versions_scene import decided


class FakeTriton:
    """Stands for `TritonControl`: one server that holds its models in memory."""

    def __init__(self) -> None:
        self.held: dict[str, set[int]] = {}
        self.asked: list[str] = []
        self.configs: dict[str, str] = {}
        self.broken: dict[str, Exception] = {}
        self.loading: set[str] = set()
        self.is_up = True
        self.cannot_list: Exception | None = None
        self.is_explicit = True
        self.closed = False

    async def index(self) -> tuple[IndexEntry, ...]:
        self._reach()
        if self.cannot_list:
            raise self.cannot_list
        ready = (
            IndexEntry(name, version, "READY", "")
            for name, versions in self.held.items()
            for version in versions
        )
        return (*ready, *(IndexEntry(name, 1, "LOADING", "") for name in self.loading))

    async def load(self, model: str, config: str | None) -> None:
        self._change(f"load {model}")
        if model in self.broken:
            raise self.broken[model]
        versions = json.loads(config)["version_policy"]["specific"]["versions"] if config else [1]
        self.held[model] = {int(version) for version in versions}

    async def unload(self, model: str) -> None:
        self._change(f"unload {model}")
        self.held.pop(model, None)

    async def config(self, model: str) -> object:
        if model in self.broken:
            raise self.broken[model]
        return triton_config.parse(self.configs[model]).message

    async def close(self) -> None:
        self.closed = True

    def _change(self, what: str) -> None:
        self._reach()
        self.asked.append(what)
        if not self.is_explicit:
            raise NotExplicit("replica a manages its models itself")

    def _reach(self) -> None:
        if not self.is_up:
            raise Unavailable("the request to replica a failed", why="connection refused")


class FakeDelivery:
    """Has what it is told that it has brought; remembers whose files have to stay."""

    def __init__(self) -> None:
        self.kept: set[tuple[str, int]] = set()
        self.there: set[tuple[str, int]] = set()
        self.problems: dict[tuple[str, int], str] = {}

    async def deliver(
        self, wanted: Collection[PublishedVersion], held: Collection[tuple[str, int]]
    ) -> None:
        self.kept = set(held)

    def has(self, replica: str, version: PublishedVersion) -> bool:
        return (version.physical, version.number) in self.there

    def problem(self, replica: str, version: PublishedVersion) -> str:
        return self.problems.get((version.physical, version.number), "")


class FakeProof:
    """Says of each version what it was told to say, and remembers what it was asked.

    It cannot be run for the models in `fails`.
    """

    def __init__(self) -> None:
        self.wrong: dict[int, str] = {}
        self.fails: dict[str, Exception] = {}
        self.asked: list[str] = []

    async def warm(self, replica: Replica, version: PublishedVersion) -> None:
        self.asked.append(f"warm {version.number}")

    async def verify(self, replica: Replica, version: PublishedVersion) -> str:
        self.asked.append(f"verify {version.number}")
        if version.model in self.fails:
            raise self.fails[version.model]
        return self.wrong.get(version.number, "")


def keeper_of(
    plane: ControlPlane,
    name: str,
    triton: FakeTriton,
    delivery: FakeDelivery,
    proof: FakeProof,
    tick: float,
    machine: Machine = UNKNOWN,
) -> ReplicaKeeper:
    """The keeper of one replica of a control plane."""
    return ReplicaKeeper(
        name,
        triton,  # type: ignore[arg-type]
        fleet=plane.fleet,
        inventory=plane.inventory,
        publisher=plane.publisher,
        steering=plane.steering,
        delivery=delivery,
        proof=proof,
        decisions=lambda: plane.decisions,
        clock=plane.clock,
        looks=Looks(lambda: 1, tick=tick),
        machine=machine,
    )


class Scene:
    """One replica, its keeper and a repository; `round` is one look and one reconciliation."""

    def __init__(self, folder: Path, *others: str | Replica, discovering: bool = False) -> None:
        beside = [one if isinstance(one, Replica) else replica(one) for one in others]
        self.plane = ControlPlane(folder, replicas=[replica("a"), *beside])
        self.triton = FakeTriton()
        self.delivery, self.proof = FakeDelivery(), FakeProof()
        self.machine = UNKNOWN
        if discovering:
            fleet, plane = self.plane.fleet, self.plane
            plane.inventory = Inventory(None, fleet, decisions=lambda: plane.decisions)
        self.keeper = self._keeper()

    def _keeper(self) -> ReplicaKeeper:
        return keeper_of(
            self.plane, "a", self.triton, self.delivery, self.proof, 60.0, self.machine
        )

    def use(self, proof: FakeProof) -> None:
        """A keeper that starts anew, with this proof."""
        self.proof = proof
        self.keeper = self._keeper()

    def tell_problems(self) -> None:
        """Models that know what the delivery says."""
        plane = self.plane
        plane.models = Models(
            plane.store,
            plane.inventory,
            plane.fleet,
            plane.publisher,
            plane.steering,
            decisions=lambda: plane.decisions,
            reload=plane.reload,
            undelivered=self.delivery.problem,
        )

    def steer(self, steering: Steering) -> None:
        """A keeper that starts anew, and is steered so."""
        self.plane.steering = steering
        self.keeper = self._keeper()

    def publish(self, *versions: PublishedVersion, delivered: bool = True, **other: Any) -> None:
        """These versions are published, `other` is decided, and their files are there."""
        self.plane.decisions = decided(*versions, **other)
        if delivered:
            self.delivery.there |= {(one.physical, one.number) for one in versions}

    def targets(self, model: str = "m") -> dict[int, tuple[str, tuple[str, ...]]]:
        """Where calls go: the name in Triton and the replicas of each version."""
        view = self.plane.publisher.snapshot.models.get(model)
        found = view.targets if view else {}
        return {n: (one.physical_name, one.replicas) for n, one in found.items()}

    @property
    def repository(self) -> Path:
        return self.plane.repository

    @property
    def fleet(self) -> Fleet:
        return self.plane.fleet

    async def round(self) -> None:
        await self.plane.inventory.scan()
        await self.keeper.observe()
        await self.keeper.reconcile()

    def play(self, *steps: Callable[[], object]) -> list[str]:
        """A round, and another after each step; gives what Triton was asked, in order."""

        async def scenario() -> None:
            await self.round()
            for step in steps:
                step()
                await self.round()

        asyncio.run(scenario())
        return self.triton.asked


def nothing() -> None:
    """A round in which nothing changes."""


def scene_with(
    folder: Path, *versions: PublishedVersion, others: tuple[str, ...] = (), **other: Any
) -> Scene:
    """A scene with these versions, and with other replicas that hold nothing."""
    scene = Scene(folder, *others)
    for name in others:
        scene.fleet.saw(name, {})
    scene.publish(*versions, **other)
    return scene
