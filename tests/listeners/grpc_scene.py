"""The gRPC listener on a real port, between clients and Tritons in frames (see `grpc_wire`).

A test is a coroutine that gets a `Scene`; `in_scene` runs it and sees to it afterwards that nothing
is left of any call. A test that needs several listeners opens each with `stage`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from types import MappingProxyType
from typing import Any

from builders import DataPlane, snapshot, target, until, view
from grpc_wire import (
    BOUND,
    DATA,
    END_STREAM,
    INFER,
    LIMITS,
    PREFACE,
    STREAM,
    WINDOW_UPDATE,
    Client,
    Received,
    Triton,
    frame,
    message,
    settings,
    window,
)
from loops import BOTH, LOOPS, parametrized
from tritonclient.grpc import service_pb2

from serve.core.calls import Account
from serve.core.replicas import Replica
from serve.core.routes import Route, Split
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.fleet import FleetGrpc
from serve.listeners.grpc.kserve import KServeGrpc
from serve.listeners.grpc.services import Service
from serve.proxy.journal import EndedCall, Journal
from serve.triton.grpc_pool import GrpcPool

ONE = snapshot(view(target(1, "a")))
TWO = snapshot(view(target(1, "a", "b")))
RENAMED = snapshot(view(target(2, "a", physical="m--01234567")))
WIDE = settings(window=1 << 24) + window(0, 1 << 24)  # what a peer takes without reading on
Services = Mapping[str, Service] | Callable[[DataPlane, GrpcPool], Mapping[str, Service]]
NONE: Services = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the access log."""

    model: str
    replica: str
    code: str
    account: Account


@dataclass(slots=True)
class Log:
    """An access log of all calls."""

    lines: list[Line] = field(default_factory=list)

    def takes(self) -> bool:
        return True

    def write(self, ended: EndedCall) -> None:
        assert ended.call.origin is not None
        line = Line(ended.call.model, ended.replica.name, ended.code, ended.account())
        self.lines.append(line)


@dataclass(slots=True)
class Scene:
    """A listener with its pool, the Tritons behind it, and the clients that it got."""

    plane: DataPlane
    pool: GrpcPool
    listener: KServeGrpc
    tritons: Mapping[str, Triton]
    log: Log
    port: int = 0
    clients: list[Client] = field(default_factory=list)

    @property
    def triton(self) -> Triton:
        """The only one."""
        [triton] = self.tritons.values()
        return triton

    async def client(
        self,
        greeting: bytes | None = None,
        *,
        answers_settings: bool = True,
        secure: ssl.SSLContext | None = None,
    ) -> Client:
        """A new client; without a greeting of its own it greets as clients do."""
        loop = asyncio.get_running_loop()
        hello = PREFACE + settings() if greeting is None else greeting
        client = Client(hello, answers_settings=answers_settings)
        name = "localhost" if secure else None
        await loop.create_connection(
            lambda: client, "127.0.0.1", self.port, ssl=secure, server_hostname=name
        )
        self.clients.append(client)
        return client

    async def over(self, client: Client, *streams: int) -> list[Received]:
        """What came on these streams, when they are over."""
        await until(lambda: all(client.streams[n].is_over for n in streams), within=BOUND)
        return [client.streams[n] for n in streams]

    async def call(
        self, client: Client, stream: int, body: bytes | None = None, *more: Any
    ) -> Received:
        """One call, from its beginning to its end."""
        client.call(stream, body, *more)
        [received] = await self.over(client, stream)
        return received

    async def ask(self, body: bytes | None = None, *more: Any) -> Received:
        """One call of a client of its own: message, method and metadata."""
        return await self.call(await self.client(), 1, body, *more)

    async def sent(
        self, *frames: bytes, method: str = INFER, metadata: Sequence[tuple[str, str]] = ()
    ) -> Received:
        """What a client of its own gets that begins a call on stream 1 and sends these frames."""
        client = await self.client()
        client.open(1, method, metadata=metadata)
        client.send(*frames)
        [received] = await self.over(client, 1)
        return received

    async def unanswered(self, body: bytes | None = None, *more: Any) -> Client:
        """A client that makes one call, which the Tritons do not answer by themselves."""
        self.silence()
        client = await self.client()
        client.call(1, body, *more)
        return client

    async def first_asked(self) -> Triton:
        """The Triton that has got a call, whole, and does not answer it; the others answer."""
        await until(lambda: any(call.ended for one in self.tritons.values() for call in one.calls))
        [first] = self._asked()
        for triton in self.tritons.values():
            triton.answers = triton is not first
        return first

    def silence(self) -> None:
        """The Tritons answer nothing by themselves."""
        for triton in self.tritons.values():
            triton.answers = False

    async def asked(self, count: int = 1) -> list[Triton]:
        """The Tritons that have got a message, once there are so many."""
        await until(lambda: len(self._asked()) >= count)
        return self._asked()

    def _asked(self) -> list[Triton]:
        return [one for one in self.tritons.values() if one.messages]

    def sweep(self, seconds: float = 0.0) -> None:
        """Time passes."""
        self.plane.clock.now += seconds
        self.listener.sweep()
        self.pool.sweep()

    async def quiet(self) -> None:
        """Wait until nothing is left anywhere of any call."""
        await until(
            lambda: self.listener.calls == self.pool.streams == self.pool.board.held == 0,
            within=BOUND,
        )
        self.plane.clock.now += 2.0
        self.plane.gateway.sweep()  # frees the slots of cancelled calls
        assert self.plane.loads.total == 0
        assert not self.plane.loads.replicas


@asynccontextmanager
async def stage(
    now: Snapshot,
    *,
    cancel: str = "absorb",
    is_quiet: bool = True,
    services: Services = NONE,
    journal: Journal | None = None,
    is_logged: bool = False,
    secure: ssl.SSLContext | None = None,
    **limits: int | float,
) -> AsyncIterator[Scene]:
    """A scene, of whose calls nothing may be left at the end."""
    log = Log()
    scene = await _build(now, cancel, services, log if is_logged else journal, limits)
    scene.log = log
    server = await asyncio.get_running_loop().create_server(
        scene.listener.connection, "127.0.0.1", 0, ssl=secure
    )
    scene.port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(BOUND):
            yield scene
            if is_quiet:
                await scene.quiet()
    finally:
        for client in scene.clients:
            client.abort()
        scene.listener.close()
        scene.pool.close()
        for triton in scene.tritons.values():
            triton.close()
        server.close()
        await until(lambda: scene.listener.connections == scene.pool.connections == 0)
        assert scene.pool.board.held == 0


async def _build(
    now: Snapshot,
    cancel: str,
    services: Services,
    journal: Journal | None,
    limits: Mapping[str, int | float],
) -> Scene:
    tritons = {name: Triton(name) for name in now.replicas}
    replicas = {}
    for name, triton in tritons.items():
        await triton.start()
        replicas[name] = Replica(name, "127.0.0.1", 1, triton.port, 1)
    bounds = replace(LIMITS, **{"connections": 1000, **limits})  # type: ignore[arg-type]
    plane = DataPlane(replace(now, replicas=MappingProxyType(replicas)), journal=journal)
    pool = GrpcPool(limits=bounds, connect_timeout=5.0, clock=plane.clock)
    listener = KServeGrpc(
        plane.gateway,
        pool,
        limits=bounds,
        cancel=cancel,
        clock=plane.clock,
        is_draining=lambda: False,
        services=services(plane, pool) if callable(services) else services,
    )
    return Scene(plane, pool, listener, tritons, Log())


def in_scene(
    now: Snapshot = ONE, *, loops: tuple[str, ...] = BOTH, **wanted: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine that takes a `Scene` and, behind it, what pytest gives.

    The arguments are those of `stage`.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def play(given: dict[str, Any]) -> None:
            async with stage(now, **wanted) as scene:
                await test(scene, **given)

        @wraps(test)
        def run(loop: str, **given: Any) -> None:
            LOOPS[loop](play(given))

        return parametrized(run, test, loops, hidden=1)

    return decorate


def send(
    client: Client, data: bytes, stream: int = 1, *, ends: bool = True, cut: int = 1 << 14
) -> None:
    """Bytes of messages in frames of this size; the last frame may end the stream."""
    for at in range(0, len(data), cut):
        is_last = ends and at + cut >= len(data)
        client.send(frame(DATA, END_STREAM * is_last, stream, data[at : at + cut]))


async def upload(client: Client, whole: bytes, *, cut: int = 1 << 14) -> None:
    """A message of any size on stream 1, as fast as the listener gives credit for it."""
    credit = 1 << 20
    for at in range(0, len(whole), cut):
        while at + cut > credit:
            await until(lambda: bool(client.of(WINDOW_UPDATE, 1)), within=BOUND)
            credit += sum(one.number for one in client.of(WINDOW_UPDATE, 1))
            client.frames.clear()
        send(client, whole[at : at + cut], ends=at + cut >= len(whole), cut=cut)


def fleet(plane: DataPlane, pool: GrpcPool) -> Mapping[str, Service]:
    """The methods whose questions go to all replicas, as services of a stage."""
    return FleetGrpc(plane.gateway, pool, clock=plane.clock).services()


def models(messages: Iterable[bytes]) -> list[tuple[str, str, int]]:
    """What infer requests ask: model, version, bytes of tensors."""
    read = [service_pb2.ModelInferRequest.FromString(one) for one in messages]
    return [(one.model_name, one.model_version, len(one.raw_input_contents[0])) for one in read]


# --- streams of messages --------------------------------------------------------------------------


def said(request_id: str, model: str = "m", size: int = 8, version: str = "1") -> bytes:
    """An answer of Triton in a stream."""
    response = service_pb2.ModelStreamInferResponse()
    response.infer_response.id = request_id
    response.infer_response.model_name = model
    response.infer_response.model_version = version
    response.infer_response.raw_output_contents.append(bytes(size))
    return bytes(response.SerializeToString())


def failed(sentence: str, request_id: str = "") -> bytes:
    """An error of Triton in a stream, which goes on."""
    response = service_pb2.ModelStreamInferResponse(error_message=sentence)
    response.infer_response.id = request_id
    return bytes(response.SerializeToString())


def read(received: Received) -> list[tuple[str, str, str]]:
    """What each answer says: its id, its model or its error, and its version."""
    found = []
    for one in map(service_pb2.ModelStreamInferResponse.FromString, received.messages):
        inner = one.infer_response
        found.append((inner.id, inner.model_name or one.error_message, inner.model_version))
    return found


async def stream_of(scene: Scene, *bodies: bytes, ends: bool = False, **options: Any) -> Client:
    """A client that has sent these messages; the Tritons answer nothing by themselves."""
    scene.silence()
    client = await scene.client()
    client.open(1, STREAM, **options)
    for body in bodies:
        send(client, message(body), ends=False)
    if ends:
        client.send(frame(DATA, END_STREAM, 1))
    return client


# --- models that sleep ----------------------------------------------------------------------------

SLEEPING = replace(view(asleep=True), route=Route(Split.of({1: 100})))
OTHER = view(target(1, "b", model="n"), name="n")
ASLEEP = snapshot(SLEEPING, OTHER, replicas=("a",))
AWAKE = snapshot(view(target(1, "a")), OTHER)


async def waiting(scene: Scene, count: int = 1) -> None:
    """Until so many calls wait, for a pool to wake or a replica to load the model."""
    await until(lambda: scene.plane.waking.count == count)


def wake(scene: Scene, now: Snapshot = AWAKE) -> None:
    """The model's pool has a replica."""
    scene.plane.wake(now)
    scene.sweep()


def pass_waiting_time(scene: Scene, seconds: float = 10) -> None:
    """So much of the time for which a call may wait has passed."""
    scene.plane.clock.now += seconds
    scene.plane.gateway.sweep()
    scene.sweep()
