"""The control process: store, inventory, fleet, reconciler and admin API, put together."""

import asyncio
import importlib
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from serve.app.paths import STORE_FILE, control_socket
from serve.app.secret import shared_secret
from serve.app.tls import HTTP, Tls
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.keys import Keys
from serve.control.management import Management
from serve.control.models import Models
from serve.control.reconciler import ReplicaKeeper
from serve.control.snapshots import Publisher, compile_snapshot
from serve.control.store import Store
from serve.core.errors import CannotStart
from serve.core.snapshot import Snapshot
from serve.settings import Settings
from serve.telemetry import Meters
from serve.triton.control import TritonControl


class ControlPlane:
    """Everything that one control process is made of."""

    def __init__(self, settings: Settings, *, tls: Tls | None = None) -> None:
        self._settings = settings
        self._tls = tls or Tls.of(settings)
        replicas = settings.tritons()
        if not replicas:
            raise CannotStart(
                "the control plane knows no Triton",
                try_this="--triton HOST:HTTP:GRPC:METRICS, or servegate up to start local ones",
            )
        repository = Path(settings.model_repo) if settings.model_repo else None
        self._decisions = Decisions()
        self._store = Store(settings.state_path / STORE_FILE, clock=time.time)
        self._fleet = Fleet(replicas, clock=time.monotonic)
        self._inventory = Inventory(repository, self._fleet, decisions=lambda: self._decisions)
        self._publisher = Publisher(
            self._compile,
            self._store,
            clock=time.monotonic,
            knows=lambda: self._fleet.is_known,
        )
        self._models = Models(
            self._store,
            self._inventory,
            self._fleet,
            self._publisher,
            decisions=lambda: self._decisions,
            reload=self._reload,
        )
        self._keepers = [
            ReplicaKeeper(
                replica.name,
                TritonControl(replica, timeout=1.0),
                fleet=self._fleet,
                inventory=self._inventory,
                publisher=self._publisher,
                clock=time.monotonic,
                tick=settings.tick,
            )
            for replica in replicas
        ]
        self._management = Management(
            self._store,
            self._inventory,
            self._fleet,
            self._publisher,
            self._keepers,
            decisions=lambda: self._decisions,
            reload=self._reload,
        )
        self._keys = Keys(
            self._store,
            decisions=lambda: self._decisions,
            reload=self._reload,
            publish=self._publisher.committed,
            wall=time.time,
        )
        self._meters = Meters()
        self._meters.gauge(
            "servegate_control_snapshot_generation",
            "Generation of the snapshot that was published last",
            lambda: self._publisher.snapshot.generation,
        )
        self._meters.table(self._replica_states)
        if self._tls is not None:
            self._meters.table(self._tls.collect)

    @property
    def models(self) -> Models:
        """The commands and questions about models."""
        return self._models

    @property
    def publisher(self) -> Publisher:
        """The present snapshot and the workers that serve it."""
        return self._publisher

    @property
    def registry(self) -> CollectorRegistry:
        """The numbers of this control plane."""
        return self._meters.registry

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        self._store.migrate()
        await self._reload()
        await self._inventory.scan()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(keeper.run()) for keeper in self._keepers]
            running.append(tasks.create_task(self._scan()))
            if self._tls is not None:
                running.append(tasks.create_task(self._tls.keep()))
            # FastAPI takes half a second to import; the replicas load their models meanwhile.
            serving = await asyncio.to_thread(importlib.import_module, "serve.app.admin")
            servers = serving.admin_servers(
                self._settings,
                models=self._models,
                fleet=self._fleet,
                publisher=self._publisher,
                management=self._management,
                keys=self._keys,
                metrics=self._meters.text,
                secret=shared_secret(self._settings),
                tls=None if self._tls is None else self._tls.listener("admin", HTTP),
                inside=control_socket(self._settings),
            )
            for server in servers:
                tasks.create_task(server.serve())
            await stop.wait()
            await self._publisher.close()
            for server in servers:
                server.should_exit = True
            for task in running:
                task.cancel()
        self._store.close()

    def _compile(self) -> Snapshot:
        return compile_snapshot(self._inventory.models, self._decisions, self._fleet)

    async def _reload(self) -> None:
        self._decisions = Decisions(await self._store.read())
        for keeper in self._keepers:
            keeper.wake()

    def _replica_states(self) -> Iterable[Metric]:
        up = GaugeMetricFamily(
            "servegate_replica_up",
            "1 while the replica answers the control plane",
            labels=["replica", "pool"],
        )
        for name, seen in self._fleet.observations.items():
            up.add_metric([name, seen.replica.pool], float(seen.is_up))
        return [up]

    async def _scan(self) -> None:
        """Look at the repository again and again; a change is published and reconciled."""
        while True:
            await asyncio.sleep(self._settings.scan_interval)
            if await self._inventory.scan(settled=True):
                await self._publisher.refresh()
                for keeper in self._keepers:
                    keeper.wake()
