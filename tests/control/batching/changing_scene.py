"""A scene for changes of configurations: two replicas with their keepers, and scripted Tritons."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from builders import ControlPlane, replica, write_model
from control.keeping import FakeDelivery, FakeProof, FakeTriton

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.batching.change import ChangeRunner
from serve.control.batching.checks import Checks
from serve.control.batching.configurations import Configuring
from serve.control.batching.reconfiguration import ChangeRequest
from serve.control.batching.rollout import Rollouts
from serve.control.models import By
from serve.control.reconciliation.keepers import Keepers
from serve.control.reconciliation.reconciler import Looks, ReplicaKeeper
from serve.control.revision import CONFIGURATION
from serve.control.storage.store import StoreEdit
from serve.control.versions import VERSION, PublishedVersion
from serve.core.errors import ServegateError, TritonFailed
from serve.core.objectives import Objective
from serve.core.replicas import Replica
from serve.triton import config as triton_config

T = TypeVar("T")
ADA = By("ada", "a test")
PATIENCE = 20.0  # seconds; a bound
CONFIG = 'backend: "onnxruntime"\nmax_batch_size: 8\n'


class Triton(FakeTriton):
    """One that remembers with which configuration it runs a model, and refuses some sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []  # max_batch_size of each load, in order
        self.running: dict[str, str] = {}
        self.refuses: set[int] = set()
        self.dies_of: set[int] = set()

    async def load(self, model: str, config: str | None) -> None:
        size = int(json.loads(config or "{}").get("max_batch_size", 0))
        self.sizes.append(size)
        if size in self.dies_of:
            self.is_up = False
        if size in self.refuses:
            raise TritonFailed(f"no memory for batches of {size}")
        await super().load(model, config)
        assert config is not None
        self.running[model] = config

    async def config(self, model: str) -> Any:
        return triton_config.of_json(self.running[model]).message


class Proof(FakeProof):
    """One that finds a version wrong wherever it runs with batches of some size."""

    def __init__(self, tritons: Mapping[str, Triton]) -> None:
        super().__init__()
        self._tritons = tritons
        self.wrong_with: set[int] = set()

    async def verify(self, replica: Replica, version: PublishedVersion) -> str:
        size = self._tritons[replica.name].sizes[-1]
        return "output 'y' is off" if size in self.wrong_with else ""


class Gateway:
    """Metrics that go on by a hundred calls with each look, some of them `slow` or `failed`."""

    def __init__(self) -> None:
        self.calls = self.slow_calls = self.errors = 0.0
        self.step, self.slow, self.failed = 100.0, 0.0, 0.0

    async def metrics(self) -> str:
        self.calls += self.step
        self.slow_calls += self.slow
        self.errors += self.failed
        labels = 'model="m",version="1",protocol="http"'
        return (
            f'servegate_calls_total{{{labels},verb="infer",code="200"}} {self.calls}\n'
            f'servegate_errors_total{{{labels},error="no_replica"}} {self.errors}\n'
            f'servegate_call_seconds_bucket{{model="m",le="0.05"}} {self.calls - self.slow_calls}\n'
            f'servegate_call_seconds_bucket{{model="m",le="+Inf"}} {self.calls}\n'
        )


class Passing:
    """A clock whose pauses take no time; `wall` goes on by them. `pauses` hears of each."""

    def __init__(self, wall: float) -> None:
        self.at = wall
        self.pauses: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.at

    def __call__(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.pauses()
        await asyncio.sleep(0)


class Scene:
    """Versions of `m` on replicas `a` and `b`. A second scene in a folder is a control plane that
    starts anew; `tritons` are those of the first."""

    def __init__(
        self,
        folder: Path,
        *versions: PublishedVersion,
        tritons: Mapping[str, Triton] | None = None,
        plain: str = "",
        replicas: str = "ab",
    ) -> None:
        self.plane = ControlPlane(folder, replicas=[replica(name) for name in replicas])
        if plain and not (self.plane.repository / "m").exists():
            write_model(self.plane.repository, "m", 1, config=plain)
        self._folder, self._versions = folder, versions
        self.tritons = tritons or {name: Triton() for name in replicas}
        self.delivery, self.proof = FakeDelivery(), Proof(self.tritons)
        self.delivery.there = {(one.physical, one.number) for one in versions}
        self.gateway, self.wall = Gateway(), Passing(self.plane.wall.now)
        self.keepers = [self._keeper(name) for name in replicas]
        self.configuring = self._configuring(folder)
        self.before: Callable[[], Awaitable[object]] = _nothing  # this control plane begins

    def _keeper(self, name: str) -> ReplicaKeeper:
        return ReplicaKeeper(
            name,
            self.tritons[name],  # type: ignore[arg-type]
            fleet=self.plane.fleet,
            inventory=self.plane.inventory,
            publisher=self.plane.publisher,
            steering=self.plane.steering,
            delivery=self.delivery,
            proof=self.proof,
            decisions=lambda: self.plane.decisions,
            clock=self.plane.clock,
            looks=Looks(lambda: 1, tick=0.01),
        )

    def _configuring(self, folder: Path) -> Configuring:
        plane = self.plane
        rollouts = Rollouts(Keepers(*self.keepers), plane.fleet, clock=plane.clock)
        storage = ArtifactStorage.of(str(folder / "storage"))
        self._rollouts = rollouts
        checks = Checks(
            storage, None, plain=plane.repository, others=lambda: plane.inventory.configurations
        )
        performing = ChangeRunner(
            *(plane.store, rollouts, plane.publisher, checks),
            decisions=lambda: plane.decisions,
            reload=self._reload,
            metrics=self.gateway.metrics,
            clock=self.wall,
            wall=self.wall,
        )
        return Configuring(
            *(plane.store, plane.models, plane.inventory, rollouts, checks, performing),
            generation=lambda: plane.publisher.snapshot.generation,
            wall=self.wall,
        )

    async def _reload(self) -> None:
        await self.plane.reload()
        for keeper in self.keepers:
            keeper.wake()

    def play(self, *commands: Callable[[], Awaitable[Any]]) -> list[Any]:
        """Do one after the other while the keepers run; gives what each said or raised."""

        async def scenario() -> list[Any]:
            said: list[Any] = []
            await self._begin()
            running = [asyncio.create_task(one.run()) for one in self.keepers]
            running.append(asyncio.create_task(self.configuring.run()))
            try:
                for command in commands:
                    try:
                        async with asyncio.timeout(PATIENCE):
                            said.append(await command())
                    except ServegateError as error:
                        said.append(error)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
            return said

        return asyncio.run(scenario())

    async def _begin(self) -> None:
        for one in self._versions:
            change = StoreEdit(VERSION, one.key, one.to_body(), "a test")
            await self.plane.store.apply(change)
        await self.before()
        await self.plane.reload()
        await self.plane.inventory.scan()
        for keeper in self.keepers:
            await keeper.observe()
        for keeper in self.keepers:
            await keeper.reconcile()

    def use(self, proof: Proof) -> None:
        """Keepers and commands that start anew, with this proof."""
        self.proof = proof
        self.keepers = [self._keeper(name) for name in self.tritons]
        self.configuring = self._configuring(self._folder)

    async def looked(self) -> None:
        """Return when some keeper has done a round."""
        await self._rollouts.news(1.0)

    async def set(self, fields: Mapping[str, Any], by: By = ADA, **wish: Any) -> None:
        """Change version 1 of `m`."""
        await self.configuring.set("m", 1, ChangeRequest(fields, by, **wish))

    def sized(self, size: int, **wish: Any) -> Callable[[], Awaitable[None]]:
        """A command that changes its largest batch."""
        return lambda: self.set({"max_batch_size": size}, **wish)

    def promise(self, objective: str) -> Callable[[], Awaitable[Any]]:
        """A command that sets an objective."""
        text = str(Objective.parse(objective))
        return lambda: self.plane.models.configure("m", objective=text, pool=None, by=ADA)

    @property
    def sizes(self) -> dict[str, list[int]]:
        """With which largest batch each replica was told to load it, one after the other."""
        return {name: triton.sizes for name, triton in self.tritons.items()}

    @property
    def decided(self) -> Any:
        """The fields in force."""
        return (self.plane.decisions.entry(CONFIGURATION, "m").body or {}).get("fields")


async def _nothing() -> None:
    """Nobody does anything."""
