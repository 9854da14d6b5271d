"""The control process: store, inventory, fleet, reconciler and admin API, put together.

The gateway as the control plane calls it for people: where it is, and what it is shown.
"""

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from serve.app.autoscaler import scaling_of
from serve.app.batch_observation import observing_of
from serve.app.benches import benches_of
from serve.app.configuration import configuring_of
from serve.app.discovery import discovering_of, may_begin_empty, may_sleep_of
from serve.app.features import Plane, build_features
from serve.app.identity import remember_gateway
from serve.app.keda import keda_of
from serve.app.membership import membership_of
from serve.app.paths import LEADER_FILE, control_socket, store_place
from serve.app.pools import pools_of, usual_pools
from serve.app.publication import Publishing, delivery_of, storage_of
from serve.app.scrapes import scrape
from serve.app.secret import shared_secret
from serve.app.tls import HTTP, Tls, client_context
from serve.control.decisions import Decisions
from serve.control.deliveries.agents import AgentDelivery
from serve.control.deliveries.courier import Courier
from serve.control.fleet import Fleet
from serve.control.fleet_meters import FleetMeters, missing_versions
from serve.control.gateway import GatewayAddress, GatewayClient
from serve.control.hint_samples import advised
from serve.control.history import History
from serve.control.inventory import Inventory
from serve.control.keys import KeyCommands
from serve.control.live.sampler import LiveSampler
from serve.control.live.sources import Sources
from serve.control.management import ManagementCommands
from serve.control.models import Models
from serve.control.placement import Placement, Rules
from serve.control.reconciliation.busy_replicas import Steering
from serve.control.reconciliation.contracts import Contracts
from serve.control.restoration import RestoreCommands
from serve.control.snapshots import Publisher, compile_snapshot
from serve.control.storage.leadership import leadership_of
from serve.control.storage.store import Store
from serve.control.versions import PublishedVersion
from serve.core.access import ApiKey
from serve.core.errors import CannotStart, Unavailable
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.settings import Settings, keys_are_required
from serve.telemetry import Meters

# --- the gateway as the control plane calls it for people -----------------------------------------


def gateway_of(settings: Settings, words: str, *, guarded: Callable[[], bool]) -> GatewayClient:
    """The data plane of these settings; `words` are the control plane's own key for it."""
    http, grpc, metrics = settings.gateway_urls
    secure = grpc.startswith("https://")
    scraped = metrics if metrics.endswith("/metrics") else f"{metrics}/metrics"
    place = GatewayAddress(http, grpc if secure else urlsplit(grpc).netloc, scraped)

    def key() -> str:
        return words if keys_are_required(settings, guarded()) else ""

    return GatewayClient(place, key=key, trust=client_context(settings) if secure else None)


# --- the control process --------------------------------------------------------------------------


_log = logging.getLogger("servegate.control")


class ControlPlane:
    """Everything that one control process is made of."""

    def __init__(self, settings: Settings, *, tls: Tls | None = None) -> None:
        self._settings = settings
        self._tls = tls or Tls.of(settings)
        replicas = settings.tritons()
        if not (replicas or may_begin_empty(settings)):
            raise CannotStart(
                "the control plane has no Tritons",
                try_this="pass --triton HOST:HTTP:GRPC:METRICS or --discover kubernetes, or use "
                "servegate up to start local ones",
            )
        where = store_place(settings)
        self._secret = shared_secret(settings)
        self._key, words = ApiKey.derived(self._secret)
        self._gateway = gateway_of(settings, words, guarded=lambda: self._decisions.guarded)
        self._decisions = Decisions()
        self._seen = 0  # the newest revision that was read
        self._leads, self._led = False, asyncio.Event()
        self._identity = ""
        self._store = Store(where, clock=time.time)
        self._leadership = leadership_of(where, settings.state_path / LEADER_FILE)
        self._fleet = Fleet(replicas, clock=time.monotonic, is_complete=not settings.discover)
        self._inventory = Inventory(
            Path(settings.model_repo) if settings.model_repo else None,
            self._fleet,
            decisions=self._decided,
            placement=Placement(_rules(settings), clock=time.monotonic),
            publishes=settings.publishes,
        )
        self._publisher = Publisher(
            self._compile,
            self._store,
            clock=time.monotonic,
            knows=lambda: self._fleet.is_known,
        )
        self._steering = Steering(
            self._fleet,
            self._publisher,
            min_available=settings.min_available,
            refuse=settings.without_spare == "refuse",
        )
        self._storage = storage_of(settings)
        self._delivery = delivery_of(settings, self._storage)
        self._models = Models(
            self._store,
            self._inventory,
            self._fleet,
            self._publisher,
            self._steering,
            decisions=self._decided,
            reload=self._reload,
            undelivered=self._delivery.problem,
        )
        self._contracts = Contracts(self._storage, decisions=self._decided)
        self._courier = Courier(
            self._inventory,
            self._fleet,
            self._delivery,
            arrived=lambda: self._keepers.wake(),
            pause=settings.scan_interval,
        )
        self._publishing = Publishing(
            settings,
            self._storage,
            store=self._store,
            inventory=self._inventory,
            models=self._models,
            contracts=self._contracts,
            decisions=self._decided,
            reload=self._reload,
            publish=self._publisher.committed,
        )
        self._keepers, self._membership = membership_of(
            settings,
            self._fleet,
            self._inventory,
            self._publisher,
            self._gateway,
            steering=self._steering,
            delivery=self._delivery,
            proof=self._contracts,
            decisions=self._decided,
        )
        self._discovering = discovering_of(
            settings,
            self._fleet,
            self._membership,
            self._inventory,
            decisions=self._decided,
        )
        self._management = ManagementCommands(
            self._store,
            self._inventory,
            self._fleet,
            self._publisher,
            self._keepers,
            decisions=self._decided,
            reload=self._reload,
        )
        self._keys = KeyCommands(
            self._store,
            decisions=self._decided,
            reload=self._reload,
            publish=self._publisher.committed,
            wall=time.time,
        )
        self._configuring = configuring_of(
            settings,
            self._storage,
            self._publishing.trials,
            self._gateway,
            store=self._store,
            models=self._models,
            inventory=self._inventory,
            fleet=self._fleet,
            publisher=self._publisher,
            keepers=self._keepers,
            decisions=self._decided,
            reload=self._reload,
        )
        self._pools = pools_of(
            settings,
            store=self._store,
            inventory=self._inventory,
            fleet=self._fleet,
            publisher=self._publisher,
            decisions=self._decided,
            reload=self._reload,
        )
        restoring = RestoreCommands(
            self._models,
            self._management,
            decisions=self._decided,
            generation=lambda: self._publisher.snapshot.generation,
            revising=self._configuring,
            allowing=self._pools,
        )
        self._history = History(self._store, restoring.by_kind)
        self._features = build_features(
            Plane(
                settings=settings,
                storage=self._storage,
                gateway=self._gateway,
                models=self._models,
                publishing=self._publishing,
                store=self._store,
                decisions=self._decided,
                reload=self._reload,
            )
        )
        self._benches = benches_of(
            settings,
            self._storage,
            self._inventory,
            self._fleet,
            self._models,
            self._keepers.lending,
            decisions=self._decided,
        )
        self._watching = observing_of(self._models, self._fleet, self._publisher, self._gateway)
        self._membership.after_leaving(self._watching.tritons.forget)
        self._scaling = scaling_of(
            settings,
            self._watching,
            usual_pools(settings),
            fleet=self._fleet,
            inventory=self._inventory,
            publisher=self._publisher,
            decisions=self._decided,
            starting=lambda: self._membership.wished,
        )
        self._keda = keda_of(settings, self._scaling.board, decisions=self._decided)
        self._live = LiveSampler(
            Sources(
                self._gateway,
                self._fleet,
                scrape,
                snapshot=lambda: self._publisher.snapshot,
                clock=time.monotonic,
                wall=time.time,
                missing=lambda: missing_versions(self._fleet, self._inventory, failed=False),
                advice=lambda now: advised(
                    self._scaling.board.all(), self._watching.hints.all(), now
                ),
            ),
            clock=time.monotonic,
        )
        self._meters = Meters()
        self._meters.gauge(
            "servegate_control_snapshot_generation",
            "Generation of the newest published configuration snapshot",
            lambda: self._publisher.snapshot.generation,
        )
        self._meters.gauge(
            "servegate_control_leads",
            "1 if this control plane is the leader, 0 if it is a standby",
            lambda: self._leads,
        )
        self._meters.table(FleetMeters(self._fleet, self._inventory).collect)
        self._meters.table(self._watching.hints.collect)
        self._meters.table(self._scaling.meters.collect)
        self._meters.table(self._discovering.collect)
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
        """Serve until `stop` is set; `Unavailable` when another process leads by then."""
        if await self._try_to_lead():
            await self._begin()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._work())]
            if self._tls is not None:
                running.append(tasks.create_task(self._tls.keep()))
            # FastAPI takes half a second to import; the replicas load their models meanwhile.
            admin = await asyncio.to_thread(importlib.import_module, "serve.app.admin")
            servers = admin.admin_servers(
                self._settings,
                self._parts(admin),
                membership=self._membership,
                wake=self._scaling.scaler.wake,
                agents=self._delivery if isinstance(self._delivery, AgentDelivery) else None,
                tls=None if self._tls is None else self._tls.listener("admin", HTTP),
                path=control_socket(self._settings),
            )
            for server, bound in servers:
                tasks.create_task(server.serve([bound]))
            ends = [tasks.create_task(stop.wait()), tasks.create_task(self._led_away())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            led_away = ends[1].done()
            self._leads = False
            await self._publisher.close()
            if isinstance(self._delivery, AgentDelivery):
                await self._delivery.close()
            for server, _ in servers:
                server.should_exit = True
            for task in (*running, *ends):
                task.cancel()
        await self._gateway.close()
        await self._leadership.release()
        self._store.close()
        if led_away:
            raise Unavailable("another control plane is now the leader")

    async def _led_away(self) -> None:
        """Return when another process leads instead of this one."""
        await self._led.wait()
        await self._leadership.keep()

    async def _try_to_lead(self) -> bool:
        """Whether nobody else leads, as far as anybody can tell now."""
        try:
            return await self._leadership.try_acquire()
        except Unavailable as error:
            _log.warning("waiting for the store: %s", error)
            return False

    async def _begin(self) -> None:
        """Open the store and begin to lead; `CannotStart` says what is wrong with it."""
        await asyncio.to_thread(self._store.migrate)
        self._identity = await self._store.identity()
        remember_gateway(self._settings, self._identity)
        await self._reload()
        await self._inventory.scan()
        self._leads = True
        self._led.set()

    async def _work(self) -> None:
        """Wait until nobody else leads, then do everything there is to do."""
        if not self._leads:
            _log.info("standing by: another control plane is the leader, or the leader is unknown")
            await self._leadership.acquire()
            await self._begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._membership.run())
            tasks.create_task(self._discovering.run())
            tasks.create_task(self._scan())
            tasks.create_task(self._follow())
            tasks.create_task(self._live.run())
            for feature in self._features:
                if feature.run is not None:
                    tasks.create_task(feature.run())
            tasks.create_task(self._configuring.run())
            tasks.create_task(self._watching.run())
            tasks.create_task(self._scaling.scaler.run())
            tasks.create_task(self._keda.run())
            tasks.create_task(self._benches.run())
            if self._settings.publishes:
                tasks.create_task(self._courier.run())
                tasks.create_task(self._publishing.run())
                interval = self._settings.contract_interval
                tasks.create_task(self._contracts.run(self._called, self._found, interval))

    def _parts(self, admin: Any) -> Any:
        """What the admin API works on. Its module is imported late."""
        from serve.app.tries import trying_of  # which the admin API has imported by now

        settings = self._settings
        return admin.AdminContext(
            models=self._models,
            fleet=self._fleet,
            publisher=self._publisher,
            management=self._management,
            keys=self._keys,
            storage=self._storage,
            uploads=self._publishing.uploads,
            publications=self._publishing.publications,
            retention=self._publishing.retention,
            history=self._history,
            tries=trying_of(
                self._storage,
                self._gateway,
                self._models,
                store=self._store,
                fleet=self._fleet,
                contracts=self._contracts,
                collecting=self._publishing.records.collecting,
                decisions=self._decided,
                reload=self._reload,
            ),
            configuring=self._configuring,
            benches=self._benches,
            overviews=self._watching.overviews,
            live=self._live,
            discovering=self._discovering,
            board=self._scaling.board,
            pools=self._pools,
            readings=scrape,
            metrics=self._meters.text,
            data_metrics=self._gateway.metrics,
            clock=time.monotonic,
            secret=self._secret,
            needs_key=partial(keys_are_required, settings, host=settings.admin_host),
            wall=time.time,
            publishes=settings.publishes,
            leads=lambda: self._leads,
            identity=lambda: self._identity,
            data_urls=settings.gateway_urls,
            services={kind: one for each in self._features for kind, one in each.services.items()},
            features=tuple(each.web() for each in self._features),
        )

    def _decided(self) -> Decisions:
        return self._decisions

    def _compile(self) -> Snapshot:
        closed = keys_are_required(self._settings, self._decisions.guarded)
        own = self._key if closed else None  # a key alone would close the gateway
        return compile_snapshot(
            self._inventory.models,
            self._decisions,
            self._fleet,
            own,
            may_sleep=may_sleep_of(self._settings, self._decisions),
        )

    async def _reload(self) -> None:
        entries = await self._store.read()
        self._decisions = Decisions(entries)
        self._seen = max([self._seen, *(entry.revision for entry in entries.values())])
        self._courier.wake()
        self._keepers.wake()

    async def _follow(self) -> None:
        """Read again what another process has written."""
        newest = await self._store.changed(self._seen)
        while True:
            with contextlib.suppress(Unavailable):
                await self._reload()
                await self._publisher.refresh()
                self._seen = max(self._seen, newest)
            newest = await self._store.changed(self._seen)

    def _called(self) -> Iterable[tuple[Replica, PublishedVersion]]:
        """Every published version on every replica that holds it, for its contract to be run."""
        for name, seen in self._fleet.observations.items():
            if not seen.is_up or not self._fleet.is_free(name):
                continue
            for one in self._inventory.for_pool(seen.replica.pool).values():
                for number in one.wanted if one.published else ():
                    if number in seen.held.get(one.name, ()):
                        yield seen.replica, self._decisions.versions[one.model][number]

    async def _found(self, replica: str, version: PublishedVersion, why: str) -> None:
        keeper = self._keepers.get(replica)
        if keeper is not None:  # else it has left meanwhile
            await keeper.found(version, why)

    async def _scan(self) -> None:
        """Look at the repository again and again; a change is published and reconciled."""
        while True:
            await asyncio.sleep(self._settings.scan_interval)
            if await self._inventory.scan(settled=True):
                await self._publisher.refresh()
                self._courier.wake()
                self._keepers.wake()


def _rules(settings: Settings) -> Rules:
    return Rules(
        keep_loaded=settings.keep_loaded,
        unload_after=settings.unload_after,
        budgets=settings.memory_of_pools(),
    )
