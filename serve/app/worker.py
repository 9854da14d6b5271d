"""One data-plane worker: listeners, gateway, transports and the feed, put together."""

import asyncio
import contextlib
import random
import socket
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from serve.app.feed import Feed
from serve.app.paths import SNAPSHOT_FILE, worker_socket
from serve.app.ports import listener
from serve.app.serving import Server
from serve.listeners.application import application
from serve.listeners.http_client import HttpClient
from serve.listeners.kserve_grpc import KServeGrpc
from serve.listeners.kserve_http import KServeHttp
from serve.proxy.admission import Admission
from serve.proxy.gateway import Gateway
from serve.proxy.health import Health
from serve.proxy.live import Live
from serve.proxy.loads import Loads
from serve.settings import Settings
from serve.telemetry import CONTENT_TYPE, Meters
from serve.triton.grpc_pool import GrpcPool
from serve.triton.http_pool import Pool

SWEEP = 0.1  # seconds between two looks at the clock, for all calls and connections together


class Worker:
    """One worker process. `number` counts from 0 and names it."""

    def __init__(self, settings: Settings, number: int, *, secret: str) -> None:
        self._settings = settings
        self._number = number
        self._live = Live()
        self._loads = Loads()
        self._health = Health(time.monotonic)
        self._meters = Meters()
        self._draining = False
        timeout = settings.connect_timeout
        self._http_pool = Pool(connect_timeout=timeout, clock=time.monotonic)
        self._grpc_pool = GrpcPool(
            limits=settings.limits, connect_timeout=timeout, clock=time.monotonic
        )
        share = -(-settings.max_in_flight // settings.workers)
        self._gateway = Gateway(
            self._live,
            loads=self._loads,
            admission=Admission(self._loads, limit=share),
            health=self._health,
            meters=self._meters,
            draw=_draw(settings.seed, number),
            clock=time.monotonic,
        )
        self._feed = Feed(
            self._live,
            url=settings.control_url,
            secret=secret,
            worker=f"worker-{number}@{socket.gethostname()}:{settings.http_port}",
            saved=settings.state_path / SNAPSHOT_FILE,
        )
        self._meters.gauge(
            "servegate_snapshot_generation",
            "Generation of the snapshot that the worker serves",
            lambda: self._live.generation,
        )
        self._meters.gauge(
            "servegate_calls_in_flight", "Calls in flight", lambda: self._loads.total
        )
        self._meters.table(self._replica_states)

    @property
    def registry(self) -> CollectorRegistry:
        """The numbers of this worker."""
        return self._meters.registry

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then let the calls in flight finish."""
        self._feed.restore()
        settings, loop = self._settings, asyncio.get_running_loop()
        http, grpc = self._listeners()
        inside = worker_socket(settings, self._number)
        inside.unlink(missing_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._http_pool.close)
            stack.callback(self._grpc_pool.close)
            stack.callback(grpc.close)
            server = Server(
                application(http),
                protocol=partial(HttpClient, http),
                timeout_graceful_shutdown=settings.drain_timeout,
            )
            about = Server(self._about, uds=str(inside))
            idle = asyncio.Event()  # the last gRPC call has ended, after draining began
            sweeps = (
                http.sweep,
                grpc.sweep,
                self._http_pool.sweep,
                self._grpc_pool.sweep,
                lambda: idle.set() if self._draining and grpc.is_idle else None,
            )
            rpc = await loop.create_server(grpc.connection, sock=self._port(settings.grpc_port))
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(self._feed.run())
                sweeping = tasks.create_task(_for_ever(*sweeps))
                serving = tasks.create_task(server.serve(sockets=[self._port(settings.http_port)]))
                tasks.create_task(about.serve())
                await stop.wait()
                self._draining = True
                server.should_exit = True
                rpc.close()
                grpc.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(idle.wait(), settings.drain_timeout)
                await serving
                about.should_exit = True
                feeding.cancel()
                sweeping.cancel()
        inside.unlink(missing_ok=True)

    def _listeners(self) -> tuple[KServeHttp, KServeGrpc]:
        limits = self._settings.limits
        http = KServeHttp(
            self._gateway,
            self._http_pool,
            limits=limits,
            clock=time.monotonic,
            is_draining=lambda: self._draining,
        )
        grpc = KServeGrpc(
            self._gateway,
            self._grpc_pool,
            limits=limits,
            cancel=self._settings.cancel,
            clock=time.monotonic,
            is_draining=lambda: self._draining,
        )
        return http, grpc

    def _port(self, port: int) -> socket.socket:
        """A listening socket that all workers have on the same port; the kernel shares out."""
        return listener(self._settings.host, port, socket.SO_REUSEPORT, socket.SO_REUSEADDR)

    async def _about(self, scope: Any, receive: Any, send: Any) -> None:
        """What the supervisor may ask: `/livez`, `/metrics`, `/modules` (what is loaded here)."""
        body, media = b"", "text/plain"
        if scope["path"] == "/modules":
            body = "\n".join(sorted(sys.modules)).encode()
        elif scope["path"] == "/metrics":
            body, media = self._meters.text(), CONTENT_TYPE
        headers = [(b"content-type", media.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _replica_states(self) -> Iterable[Metric]:
        usable = GaugeMetricFamily(
            "servegate_replica_usable",
            "1 unless the worker avoids the replica after failures",
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
