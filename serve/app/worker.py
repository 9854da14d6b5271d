"""One data-plane worker: listeners, gateway, transports and the feed, put together."""

import asyncio
import contextlib
import random
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from serve.app.disagreements import DisagreementReporter
from serve.app.feed import Feed
from serve.app.http_server import HttpServer
from serve.app.hung_replicas import HungReplicas
from serve.app.journals import Journals
from serve.app.management import ControlManager
from serve.app.paths import SNAPSHOT_FILE, worker_socket
from serve.app.ports import BACKLOG, inside, listener
from serve.app.tls import HTTP, HTTP2, Tls, client_context
from serve.app.wake_requests import WakeCaller
from serve.core.snapshot import Snapshot
from serve.listeners.application import application
from serve.listeners.grpc.fleet import FleetGrpc
from serve.listeners.grpc.health import health
from serve.listeners.grpc.kserve import KServeGrpc
from serve.listeners.grpc.reflection import ReflectionService
from serve.listeners.grpc.services import Service
from serve.listeners.http.connection import HttpClientConnection
from serve.listeners.http.kserve import KServeHttp
from serve.listeners.management import Management
from serve.listeners.mirror_senders import comparison, senders
from serve.listeners.tfserving.facade import TfServing
from serve.listeners.tfserving.grpc import TfServingGrpc
from serve.listeners.tfserving.http import router
from serve.processes.compute import ComputeProcess
from serve.proxy.admission import Admission
from serve.proxy.gateway import Gateway, LiveSnapshot
from serve.proxy.health import Health
from serve.proxy.loads import Loads
from serve.proxy.mirrors import LONGEST_COPY, Mirrors
from serve.proxy.waiting_calls import Waking
from serve.settings import Settings, is_loopback, keys_are_required
from serve.telemetry import CONTENT_TYPE, Meters
from serve.triton.grpc_pool import GrpcPool
from serve.triton.http_pool import Pool

SWEEP = 0.1  # seconds between two looks at the clock, for all calls and connections together


class ProxyWorker:
    """One worker process. `number` counts from 0 and names it."""

    def __init__(self, settings: Settings, number: int, *, secret: str) -> None:
        self._settings = settings
        self._number = number
        self._live = LiveSnapshot()
        self._loads = Loads()
        self._health = Health(time.monotonic, random.random)
        self._meters = Meters()
        self._draining = False
        self._connected: Snapshot | None = None  # the one whose replicas have connections
        self._idle = asyncio.Event()  # the last gRPC call has ended, after draining began
        timeout = settings.connect_timeout
        self._http_pool = Pool(connect_timeout=timeout, clock=time.monotonic)
        self._grpc_pool = GrpcPool(
            limits=settings.limits, connect_timeout=timeout, clock=time.monotonic
        )
        name = f"worker-{number}@{socket.gethostname()}:{settings.http_port}"
        self._tls = Tls.of(settings)
        self._journals = Journals.of(settings, instance=name, draw=random.random)
        trust = partial(client_context, settings)
        self._caller = WakeCaller(
            lambda: self._waking.wanted(), url=settings.control_url, secret=secret, trust=trust
        )
        self._waking = Waking(
            calls=settings.waking_calls, seconds=settings.waking_timeout, tell=self._caller.tell
        )
        self._hanging = HungReplicas(
            self._http_pool,
            self._grpc_pool,
            replicas=lambda: self._live.current.replicas if self._live.current else {},
            busy=lambda: tuple(self._loads.replicas),
            health=self._health,
            clock=time.monotonic,
        )
        self._mirror_http = Pool(connect_timeout=timeout, clock=time.monotonic)
        self._mirror_grpc = GrpcPool(
            limits=settings.limits, connect_timeout=timeout, clock=time.monotonic
        )
        self._comparing = ComputeProcess()
        self._reporter = DisagreementReporter(
            self._comparing, url=settings.control_url, secret=secret, trust=trust
        )
        self._mirrors = self._make_mirrors()
        self._gateway = self._walk()
        self._tfserving = TfServing(
            self._gateway, self._http_pool, limits=settings.limits, clock=time.monotonic
        )
        self._feed = Feed(
            self._live,
            url=settings.control_url,
            trust=trust,
            secret=secret,
            worker=name,
            saved=settings.state_path / SNAPSHOT_FILE,
        )
        self._management: Management | None = None
        if settings.allow_management:
            manager = ControlManager(settings.control_url, secret=secret, trust=trust)
            self._management = Management(self._gateway, self._http_pool, self._grpc_pool, manager)
        self._register()

    @property
    def registry(self) -> CollectorRegistry:
        """The numbers of this worker."""
        return self._meters.registry

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then let the calls in flight finish."""
        self._feed.restore()
        http, grpc = self._listeners()
        with contextlib.ExitStack() as stack:
            for close in (self._journals.close, self._http_pool.close, self._grpc_pool.close):
                stack.callback(close)
            for close in (self._mirrors.close, self._mirror_http.close, self._mirror_grpc.close):
                stack.callback(close)
            stack.callback(grpc.close)
            stack.callback(self._hanging.close)
            stack.callback(self._tfserving.compute.close)
            stack.callback(self._comparing.close)
            async with asyncio.TaskGroup() as tasks:
                sweeps = _for_ever(*self._sweeps(http, grpc))
                work = [self._feed.run(), self._caller.run(), sweeps]
                if self._tls is not None:
                    work.append(self._tls.keep())
                working = [tasks.create_task(one) for one in work]
                path = worker_socket(self._settings, self._number)
                about = HttpServer(self._about)
                telling = tasks.create_task(about.serve([inside(path)]))
                stack.callback(path.unlink, missing_ok=True)
                await self._serve(http, grpc, stop)
                about.should_exit = True
                await telling
                for task in working:
                    task.cancel()

    async def _serve(self, http: KServeHttp, grpc: KServeGrpc, stop: asyncio.Event) -> None:
        """Both data ports, until `stop` and the end of the calls in flight."""
        settings = self._settings
        server = HttpServer(
            application(http, router(http, self._tfserving)),
            protocol=partial(HttpClientConnection, http),
            tls=self._context("http", HTTP),
            handshake=settings.head_timeout,
            backlog=BACKLOG,
            timeout_graceful_shutdown=settings.drain_timeout,
        )
        secure = self._context("grpc", HTTP2)
        rpc = await asyncio.get_running_loop().create_server(
            grpc.connection,
            sock=self._port(settings.grpc_port),
            backlog=BACKLOG,
            ssl=secure,
            ssl_handshake_timeout=settings.head_timeout if secure else None,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[self._port(settings.http_port)]))
            await stop.wait()
            self._draining = True
            self._waking.close()
            server.should_exit = True
            rpc.close()
            grpc.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.drain_timeout):
                    await self._idle.wait()

    def _sweeps(self, http: KServeHttp, grpc: KServeGrpc) -> Iterable[Callable[[], None]]:
        """What looks at the clock every 100 ms."""
        yield self._keep_connections
        yield self._hanging.sweep
        yield self._gateway.sweep  # before grpc.sweep, which sends what this has begun
        yield from (http.sweep, grpc.sweep, self._http_pool.sweep, self._grpc_pool.sweep)
        yield from (self._mirror_http.sweep, self._mirror_grpc.sweep)
        if self._journals.log is not None:
            yield self._journals.log.flush
        yield lambda: self._idle.set() if self._draining and grpc.is_idle else None

    def _keep_connections(self) -> None:
        """To replicas that there are, in the snapshot's eyes."""
        snapshot = self._live.current
        if snapshot is not None and snapshot is not self._connected:
            self._connected = snapshot
            self._http_pool.keep(snapshot.replicas.values())
            self._mirror_http.keep(snapshot.replicas.values())

    def _make_mirrors(self) -> Mirrors:
        """Copies of calls, with connections of their own."""
        limits = self._settings.limits
        return Mirrors(
            replicas=lambda: self._live.current.replicas if self._live.current else {},
            loads=self._loads,
            health=self._health,
            meters=self._meters,
            draw=random.random,
            clock=time.monotonic,
            senders=senders(self._mirror_http, self._mirror_grpc, clock=time.monotonic),
            compare=comparison(self._comparing),
            keep=self._reporter.keep,
            seconds=min(limits.call, LONGEST_COPY),
        )

    def _walk(self) -> Gateway:
        settings = self._settings
        share = -(-settings.max_in_flight // settings.workers)
        return Gateway(
            self._live,
            loads=self._loads,
            admission=Admission(self._loads, limit=share),
            health=self._health,
            meters=self._meters,
            draw=_draw(settings.seed, self._number),
            clock=time.monotonic,
            needs_key=lambda snapshot: keys_are_required(settings, snapshot.guarded),
            journal=self._journals.journal,
            waking=self._waking,
            mirrors=self._mirrors,
        )

    def _register(self) -> None:
        """Tell the meters of numbers that are kept elsewhere."""
        self._meters.gauge(
            "servegate_snapshot_generation",
            "Generation of the configuration snapshot that the worker uses",
            lambda: self._live.generation,
        )
        self._meters.gauge(
            "servegate_calls_in_flight",
            "Calls that the worker has admitted and that have not finished",
            lambda: self._loads.total,
        )
        self._meters.gauge(
            "servegate_calls_asleep",
            "Calls that wait for a pool to scale up from zero",
            lambda: self._waking.count,
        )
        self._meters.table(self._model_calls)
        self._meters.table(self._replica_states)
        for part in (self._tls, self._journals.log):
            if part is not None:
                self._meters.table(part.collect)

    def _listeners(self) -> tuple[KServeHttp, KServeGrpc]:
        limits = self._settings.limits
        http = KServeHttp(
            self._gateway,
            self._http_pool,
            limits=limits,
            clock=time.monotonic,
            is_draining=lambda: self._draining,
            management=self._management,
            is_local=is_loopback(self._settings.host),
        )
        grpc = KServeGrpc(
            self._gateway,
            self._grpc_pool,
            limits=limits,
            cancel=self._settings.cancel,
            clock=time.monotonic,
            is_draining=lambda: self._draining,
            services=self._services(),
        )
        return http, grpc

    def _services(self) -> dict[str, Service]:
        """What else is answered on the gRPC port."""
        fleet = FleetGrpc(self._gateway, self._grpc_pool, clock=time.monotonic)
        checks = health(self._gateway, lambda: self._draining)
        managed = {} if self._management is None else self._management.services()
        tfserving = TfServingGrpc(self._tfserving).services()
        return fleet.services() | checks | ReflectionService().services() | managed | tfserving

    def _context(self, name: str, protocol: str) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.listener(name, protocol)

    def _port(self, port: int) -> socket.socket:
        """A listening socket that all workers have on the same port; the kernel shares out."""
        return listener(self._settings.host, port)

    async def _about(self, scope: Any, receive: Any, send: Any) -> None:
        """What the supervisor may ask: `/livez`, `/readyz`, `/metrics`, `/modules` (all loaded)."""
        status, body, media = 200, b"", "text/plain"
        if scope["path"] == "/readyz" and (lacks := self._lacks()):
            status, body = 503, lacks.encode()
        elif scope["path"] == "/modules":
            body = "\n".join(sorted(sys.modules)).encode()
        elif scope["path"] == "/metrics":
            body, media = self._meters.text(), CONTENT_TYPE
        headers = [(b"content-type", media.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _lacks(self) -> str:
        """Why no calls should come, after the name of the worker; empty where they may."""
        if self._draining:
            return "is draining"
        return "" if self._live.generation else "has no snapshot yet"

    def _model_calls(self) -> Iterable[Metric]:
        """Of every model that is known, also while nobody calls it."""
        calls = GaugeMetricFamily(
            "servegate_model_calls_in_flight",
            "Calls to the model that are in flight or waiting",
            labels=["model"],
        )
        snapshot, present = self._live.current, self._gateway.calls
        for name in sorted({*present, *(snapshot.models if snapshot else ())}):
            calls.add_metric([name], float(present.get(name, 0)))
        limit = GaugeMetricFamily(
            "servegate_model_calls_limit",
            "Current limit on the model's calls in flight; exported only while the limit is "
            "lowered because clients gave up waiting",
            labels=["model"],
        )
        for name, most in sorted(self._gateway.admission.limits.items()):
            limit.add_metric([name], float(most))
        return [calls, limit]

    def _replica_states(self) -> Iterable[Metric]:
        usable = GaugeMetricFamily(
            "servegate_replica_usable",
            "0 while the worker avoids the replica after failures, otherwise 1",
            labels=["replica", "pool"],
        )
        busy = GaugeMetricFamily(
            "servegate_replica_calls_in_flight",
            "Calls in flight on the replica",
            labels=["replica", "pool"],
        )
        if self._live.generation:
            for name, replica in self._live.snapshot.replicas.items():
                usable.add_metric([name, replica.pool], float(self._health.is_usable(name)))
                busy.add_metric([name, replica.pool], float(self._loads.on_replica(name)))
            for name in self._loads.replicas.keys() - self._live.snapshot.replicas.keys():
                busy.add_metric([name, ""], float(self._loads.on_replica(name)))  # it leaves
        return [usable, busy]


def _draw(seed: int, number: int) -> Any:
    """The source of the split's draws; with a seed, worker n draws from `Random(seed + n)`."""
    return random.Random(seed + number if seed >= 0 else None).random


async def _for_ever(*sweeps: Callable[[], None]) -> None:
    """One sweeper instead of timers for every call."""
    while True:
        await asyncio.sleep(SWEEP)
        for sweep in sweeps:
            sweep()
