"""The HTTP listener on a real port, between raw clients and replicas that a test scripts.

A test is a coroutine that gets a `Scene`; `in_scene` runs it on both event loops and sees to it
afterwards that everything is back at zero: calls, connections, bytes held, file descriptors.

    client ── bytes ──▶ the listener ── requests ──▶ Replica ── its script ──▶ answers
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import functools
import socket
import ssl
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from builders import DataPlane, replica, snapshot, target, until, view
from certificates import Authority
from listeners.http_clients import Answer, Client
from listeners.http_messages import reply
from listeners.http_replicas import Hand, Received, Replica
from loops import BOTH, LOOPS, parametrized

from serve.app.http_server import HttpServer
from serve.core.calls import Account
from serve.core.routes import Route, Split
from serve.core.snapshot import Snapshot
from serve.listeners.http.connection import HttpClientConnection
from serve.listeners.http.kserve import KServeHttp
from serve.proxy.journal import EndedCall
from serve.settings import Settings
from serve.triton.http_connection import HttpConnection
from serve.triton.http_pool import Pool

BOUND = 60.0  # seconds; a bound for what takes milliseconds
LIMITS = Settings().limits


@dataclass(slots=True)
class Log:
    """The journal of all calls: model, status or error, and what the listener knows of each."""

    lines: list[tuple[str, str, Account]] = field(default_factory=list)

    def takes(self) -> bool:
        return True

    def write(self, ended: EndedCall) -> None:
        if ended.call.origin is not None:
            self.lines.append((ended.call.model, ended.code, ended.account()))

    @property
    def last(self) -> Account:
        return self.lines[-1][2]


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of clients that trust it."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(*authority.issue("server"))
        return server, ssl.create_default_context(cafile=str(authority.path))


@dataclass(slots=True)
class Scene:
    """The listener, its replicas and its clients. `clock` is the gateway's time."""

    plane: DataPlane
    pool: Pool
    listener: KServeHttp
    server: HttpServer
    port: int
    replicas: list[Replica]
    log: Log
    trust: ssl.SSLContext | None = None  # with which clients connect, where TLS is spoken
    clients: list[Client] = field(default_factory=list)

    @property
    def a(self) -> Replica:
        return self.replicas[0]

    @property
    def b(self) -> Replica:
        return self.replicas[1]

    async def connect(self, *, limit: int = 1 << 22, receive_buffer: int = 0) -> Client:
        """A new client; with a small `receive_buffer` it is one that reads slowly."""
        peer = socket.socket()
        peer.setblocking(False)
        if receive_buffer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", self.port))
        name = "localhost" if self.trust else None
        opened = await asyncio.open_connection(
            sock=peer, limit=limit, ssl=self.trust, server_hostname=name
        )
        client = Client(*opened)
        self.clients.append(client)
        return client

    async def ask(self, data: bytes) -> Answer:
        """One request on a connection of its own."""
        return await (await self.connect()).ask(data)

    async def begin(self, data: bytes) -> tuple[Client, Hand, Received]:
        """A call that has come to replica `a`, for which the test answers by hand."""
        hand = self.a.by_hand()
        client = await self.connect()
        await client.send(data)
        return client, hand, await hand.call()

    def pass_time(self, seconds: float) -> None:
        """Time goes by, and the sweeper looks at the clock."""
        self.plane.clock.now += seconds
        self.listener.sweep()
        self.pool.sweep()

    async def until_swept(self, reached: Callable[[], bool]) -> None:
        """Let the sweeper run until this holds; no time passes."""

        def swept() -> bool:
            self.pass_time(0)
            return reached()

        await until(swept)

    async def feed(self, client: Client, data: bytes, step: int) -> None:
        """Send in pieces, each of which the listener reads by itself."""
        for start in range(0, len(data), step):
            client.writer.write(data[start : start + step])
            await self.until_read()

    async def until_read(self) -> None:
        """Let the listener read all that clients have sent, unless it will not read on."""
        ours = [client.writer.transport for client in self.clients]

        def all_read() -> bool:
            theirs = list(self.listener.clients)
            waiting = any(
                one.get_write_buffer_size() or _queued(one, termios.TIOCOUTQ) for one in ours
            )
            unread = any(_queued(one.transport, termios.FIONREAD) for one in theirs)
            return not (waiting or unread) or any(one.is_request_paused for one in theirs)

        await until(all_read)
        await asyncio.sleep(0)

    @property
    def upstreams(self) -> list[HttpConnection]:
        """The connections to replicas that have a call on them."""
        return list(self.pool._busy)

    def count(self, name: str, **labels: str) -> float:
        return self.plane.count(name, **labels)

    async def close(self) -> None:
        """The clients go, the listener closes, and then nothing may be left."""
        for client in self.clients:
            client.writer.transport.abort()
        for listening in self.server.servers:
            listening.close()
        await self.until_swept(lambda: not self.listener.clients and self.is_at_rest)
        self.pool.close()
        for one in self.replicas:
            await one.stop()

    @property
    def is_at_rest(self) -> bool:
        """Whether no call is anywhere."""
        loads = self.plane.loads
        return not (loads.total or loads.replicas or self.pool.busy or self.listener.held)


def fleet(count: int, **model: Any) -> Snapshot:
    """One model on so many replicas, called a, b, …"""
    names = "abc"[:count]
    return snapshot(view(target(1, *names), **model))


def _placed(now: Snapshot, listening: list[Replica]) -> Snapshot:
    """The snapshot with the replicas where they listen."""
    ports = dict(zip("abc", (one.port for one in listening), strict=False))
    named = {
        name: replica(name, http=ports.get(name) or one.http_port)
        for name, one in now.replicas.items()
    }
    return dataclasses.replace(now, replicas=named)


# --- calls that wait ------------------------------------------------------------------------------

SLEEPING = dataclasses.replace(
    view(asleep=True, labels={"stable": 1}), route=Route(Split.of({1: 100}))
)
ASLEEP = snapshot(SLEEPING, replicas=("a",))
AWAKE = snapshot(view(target(1, "a"), labels={"stable": 1}))
UNKNOWN = reply(b'{"error":"Request for unknown model: \'m\' is not found"}', status=404)


async def waiting(scene: Scene, count: int = 1) -> None:
    """Until so many calls wait, for a pool to wake or a replica to load the model."""
    await until(lambda: scene.plane.waking.count == count)


def pass_waiting_time(scene: Scene, seconds: float = 10) -> None:
    """So much of the time for which a call may wait has passed."""
    scene.plane.clock.now += seconds
    scene.plane.gateway.sweep()


# --- the scene ------------------------------------------------------------------------------------


@asynccontextmanager
async def scene(
    now: Snapshot | int | None = 1,
    *,
    limits: Mapping[str, Any] = MappingProxyType({}),
    admitted: int = 100,
    draining: bool = False,
    send_buffer: int = 0,
    tls: bool = False,
    local: bool = False,
    app: Callable[[KServeHttp], Any] = lambda listener: listener,
) -> AsyncIterator[Scene]:
    """Everything running, and at the end everything at zero, and nothing raised meanwhile.

    `now` is the snapshot, or how many replicas the model `m` has. With a small `send_buffer` the
    kernel takes little of an answer, so that slow readers are noticed soon. A `local` port is open
    to this machine alone.
    """
    now = fleet(now) if isinstance(now, int) else now
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    async with contextlib.AsyncExitStack() as stack:
        replicas = [Replica() for _ in (now.replicas if now is not None else ())]
        for one in replicas:
            stack.callback((await one.listen()).close)
        placed, log = None if now is None else _placed(now, replicas), Log()
        plane = DataPlane(placed, limit=admitted, journal=log)
        pool = Pool(connect_timeout=5.0, clock=plane.clock)
        listener = KServeHttp(
            plane.gateway,
            pool,
            limits=dataclasses.replace(LIMITS, **limits),
            clock=plane.clock,
            is_draining=lambda: draining,
            is_local=local,
        )
        port = socket.create_server(("127.0.0.1", 0))
        if send_buffer:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        ours, theirs = contexts() if tls else (None, None)
        server = await _serve(app(listener), listener, port, ours)
        number = port.getsockname()[1]
        made = Scene(plane, pool, listener, server, number, replicas, log, theirs)
        try:
            yield made
        finally:
            await made.close()
    assert complaints == [], complaints


async def _serve(
    app: Any, listener: KServeHttp, port: socket.socket, tls: ssl.SSLContext | None
) -> HttpServer:
    """A server without its main loop, which would cost every test a tenth of a second."""
    server = HttpServer(app, protocol=partial(HttpClientConnection, listener), tls=tls)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[port])
    return server


def _queued(transport: asyncio.WriteTransport, queue: int) -> int:
    """Bytes that the kernel holds: sent and not received, or received and not read."""
    if transport.is_closing():
        return 0
    size = fcntl.ioctl(transport.get_extra_info("socket").fileno(), queue, bytes(4))
    return int.from_bytes(size, sys.byteorder)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _back_to(count: int) -> bool:
    """No more descriptors than that, at once or when threads of other tests are through.

    Fewer there may be, when garbage of other tests was collected.
    """
    end = time.monotonic() + BOUND
    while descriptors() > count:
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True  # without another look: a thread of another test may have opened one by now


@functools.cache
def _warm_up(loop: str) -> None:
    """The first loop of its kind opens descriptors that stay."""
    LOOPS[loop](asyncio.sleep(0))


def in_scene(
    now: Snapshot | int | None = 1,
    *,
    loops: tuple[str, ...] = BOTH,
    **wanted: Any,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine that takes a `Scene` and, behind it, what pytest gives.

    The arguments are those of `scene`.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def play(given: dict[str, Any]) -> None:
            async with asyncio.timeout(BOUND), scene(now, **wanted) as made:
                await test(made, **given)

        @functools.wraps(test)
        def run(loop: str, **given: Any) -> None:
            _warm_up(loop)
            before = descriptors()
            LOOPS[loop](play(given))
            assert _back_to(before)

        return parametrized(run, test, loops, hidden=1)

    return decorate
