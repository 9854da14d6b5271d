"""One data-plane worker: listeners, gateway, transports and the feed, put together."""

import asyncio
import contextlib
import random
import socket
import sys
import time
from collections.abc import Iterable
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from serve.app.feed import Feed
from serve.app.paths import SNAPSHOT_FILE, worker_socket
from serve.app.ports import listener
from serve.app.serving import Server
from serve.core.errors import CannotStart
from serve.listeners.kserve_grpc import OPTIONS, KServeGrpc
from serve.listeners.kserve_http import KServeHttp
from serve.proxy.admission import Admission
from serve.proxy.gateway import Gateway
from serve.proxy.health import Health
from serve.proxy.live import Live
from serve.proxy.loads import Loads
from serve.settings import Settings
from serve.telemetry import CONTENT_TYPE, Meters
from serve.triton.grpc_transport import GrpcTransport
from serve.triton.http_transport import HttpTransport

KEEP_ALIVE = 75  # seconds; longer than the pools of common clients keep an idle connection


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
        self._http = HttpTransport(connect_timeout=settings.connect_timeout, clock=time.monotonic)
        self._grpc = GrpcTransport(clock=time.monotonic)
        share = -(-settings.max_in_flight // settings.workers)
        self._gateway = Gateway(
            self._live,
            {"http": self._http, "grpc": self._grpc},
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
        options: dict[str, Any] = {
            "max_body": self._settings.max_body_bytes,
            "timeout": self._settings.call_timeout,
            "clock": time.monotonic,
            "is_draining": lambda: self._draining,
        }
        inside = worker_socket(self._settings, self._number)
        inside.unlink(missing_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._http)
            await stack.enter_async_context(self._grpc)
            rpc = self._grpc_server(KServeGrpc(self._gateway, **options))
            await rpc.start()
            http = Server(
                KServeHttp(self._gateway, **options),
                timeout_graceful_shutdown=self._settings.drain_timeout,
                timeout_keep_alive=KEEP_ALIVE,
            )
            about = Server(self._about, uds=str(inside))
            data = listener(
                self._settings.host,
                self._settings.http_port,
                socket.SO_REUSEPORT,
                socket.SO_REUSEADDR,
            )
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(self._feed.run())
                tasks.create_task(http.serve(sockets=[data]))
                tasks.create_task(about.serve())
                await stop.wait()
                self._draining = True
                http.should_exit = about.should_exit = True
                await rpc.stop(self._settings.drain_timeout)
                feeding.cancel()
        inside.unlink(missing_ok=True)

    def _grpc_server(self, handler: KServeGrpc) -> grpc.aio.Server:
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((handler,))
        host, port = self._settings.host, self._settings.grpc_port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            server.add_insecure_port(address)
        except RuntimeError as error:
            raise CannotStart(f"port {port} on {host} cannot be used", why=str(error)) from error
        return server

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
