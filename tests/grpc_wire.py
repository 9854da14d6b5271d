"""HTTP/2 peers in raw frames: a client and a Triton that do what a test tells them, and no more.

They are written without the code under test, but for the numbers of frame types, and read header
blocks with the `hpack` library. All that a scene consists of runs on one loop, over real sockets.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar, cast

import hpack
import uvloop
from builders import DataPlane, until
from tritonclient.grpc import service_pb2

from serve.core.limits import Limits
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.kserve import KServeGrpc
from serve.listeners.grpc.services import Service
from serve.proxy.journal import Journal
from serve.triton.grpc_pool import GrpcPool

T = TypeVar("T")
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = range(6)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 1, 1, 4, 8, 0x20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BOUND = 20.0  # seconds; a bound for what takes milliseconds
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LIMITS = Limits(
    body=1 << 26,
    head=1 << 14,
    in_flight=1 << 26,
    inflated=1 << 20,
    call=300.0,
    head_time=10.0,
    body_idle=30.0,
    body_rate=1024.0,
    idle=75.0,
    incomplete=1000,
    chunks=1000,
    connections=8,
    streams=100,
    frame=1 << 18,
    continuations=4,
    resets=20,
    pings=50,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def number(self) -> int:
        """The first 32 bits of the payload: an error code, an increment."""
        return int.from_bytes(self.payload[:4], "big")

    @property
    def code(self) -> int:
        """The error code of a GOAWAY."""
        return int.from_bytes(self.payload[4:8], "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    names = ("table", "push", "streams", "window", "frame", "head")
    items = [struct.pack(">HI", names.index(name) + 1, value) for name, value in values.items()]
    return frame(SETTINGS, 0, 0, b"".join(items))


def window(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def reset(stream: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code))


def block(*fields: tuple[str, str | bytes]) -> bytes:
    """A header block that needs no table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    plain = [hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields]
    return bytes(encoder.encode(plain, huffman=False)).removeprefix(b"\x20")


def message(body: bytes, *, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(body)) + body


def infer(model: str = "m", version: str = "", size: int = 8, **more: str) -> bytes:
    """A `ModelInferRequest` whose tensor holds `size` bytes."""
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version, **more)
    request.inputs.add(name="x", datatype="UINT8", shape=[size])
    request.raw_input_contents.append(bytes(index & 0xFF for index in range(size)))
    return bytes(request.SerializeToString())


def answer(model: str = "m", size: int = 8, **more: str) -> bytes:
    """A `ModelInferResponse` whose tensor holds `size` bytes."""
    response = service_pb2.ModelInferResponse(model_name=model, model_version="1", **more)
    response.raw_output_contents.append(bytes(index & 0xFF for index in range(size)))
    return bytes(response.SerializeToString())


@dataclass(slots=True)
class Received:
    """One side of a stream: its heads and its bytes."""

    heads: list[dict[str, str]] = field(default_factory=list)
    fields: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def messages(self) -> list[bytes]:
        """The whole messages in the body."""
        found, rest = [], bytes(self.body)
        while len(rest) >= 5 and len(rest) >= 5 + int.from_bytes(rest[1:5], "big"):
            size = int.from_bytes(rest[1:5], "big")
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found

    @property
    def trailers(self) -> dict[str, str]:
        """The last head, but for the name of the call, which is another each time."""
        last = self.heads[-1] if self.heads else {}
        return {name: value for name, value in last.items() if name != "servegate-request-id"}

    @property
    def request_id(self) -> str:
        """The name of the call."""
        return self.heads[-1]["servegate-request-id"]

    @property
    def status(self) -> int:
        """The gRPC status, -1 without one."""
        return int(self.trailers.get("grpc-status", "-1"))

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.ended or self.reset is not None


class Peer(asyncio.Protocol):
    """One end of an HTTP/2 connection: acknowledges settings and pings, and does nothing else."""

    def __init__(self, *, on_ended: Callable[[Peer, int], None] | None = None) -> None:
        self.frames: list[Frame] = []
        self.streams: defaultdict[int, Received] = defaultdict(Received)
        self.is_closed = False
        self.answers_settings = True
        self._on_ended = on_ended
        self._decoder = hpack.Decoder(max_header_list_size=1 << 20)
        self._rest = b""
        self._block = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True

    def data_received(self, data: bytes) -> None:
        self._rest = (self._rest + data).removeprefix(PREFACE)
        while len(self._rest) >= 9:
            size = int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < 9 + size:
                return
            kind, flags = self._rest[3], self._rest[4]
            stream = int.from_bytes(self._rest[5:9], "big")
            one = Frame(kind, flags, stream, self._rest[9 : 9 + size])
            self._rest = self._rest[9 + size :]
            self.frames.append(one)
            self._take(one)

    def _take(self, one: Frame) -> None:
        received = self.streams[one.stream]
        if one.kind == SETTINGS and not one.flags & ACK and self.answers_settings:
            self.send(frame(SETTINGS, ACK))
        elif one.kind == PING and not one.flags & ACK:
            self.send(frame(PING, ACK, 0, one.payload))
        elif one.kind in (HEADERS, CONTINUATION):
            self._block += one.payload
            if one.flags & END_HEADERS:
                pairs = [
                    (bytes(n), bytes(v)) for n, v in self._decoder.decode(self._block, raw=True)
                ]
                self._block = b""
                received.fields.append(pairs)
                received.heads.append({n.decode(): v.decode("latin-1") for n, v in pairs})
        elif one.kind == DATA:
            received.body += one.payload
        elif one.kind == RST_STREAM:
            received.reset = one.number
        if one.kind in (DATA, HEADERS) and one.flags & END_STREAM:
            received.ended = True
            if self._on_ended is not None:
                self._on_ended(self, one.stream)

    def send(self, *pieces: bytes) -> None:
        assert self._transport is not None
        self._transport.writelines(pieces)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    def of(self, kind: int, stream: int | None = None) -> list[Frame]:
        """The frames of this type that have come."""
        return [one for one in self.frames if one.kind == kind and stream in (None, one.stream)]


class Client(Peer):
    """A gRPC client in frames; it says its preface and its settings at once."""

    def __init__(self, greeting: bytes, *, answers_settings: bool = True) -> None:
        super().__init__()
        self.answers_settings = answers_settings
        self._greeting = greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(self._greeting)

    def open(
        self,
        stream: int,
        method: str = INFER,
        *,
        metadata: Sequence[tuple[str, str]] = (),
        flags: int = END_HEADERS,
        first: bytes = b"",
    ) -> None:
        self.send(frame(HEADERS, flags, stream, first + request_block(method, *metadata)))

    def call(
        self,
        stream: int,
        body: bytes | None = None,
        method: str = INFER,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        """One whole unary call in two frames."""
        head = frame(HEADERS, END_HEADERS, stream, request_block(method, *metadata))
        whole = message(infer() if body is None else body)
        self.send(head, frame(DATA, END_STREAM, stream, whole))

    def ping(self) -> Callable[[], bool]:
        """Send a PING; whether its answer has come, behind all that was sent before."""
        seen = len(self.of(PING))
        self.send(frame(PING, 0, 0, b"12345678"))
        return lambda: len(self.of(PING)) > seen


def request_block(method: str, *metadata: tuple[str, str]) -> bytes:
    return block(
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "gateway"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *metadata,
    )


HEAD = (":status", "200"), ("content-type", "application/grpc")


class Triton:
    """A server in frames. It answers every call that has ended, unless `answers` is false."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.peers: list[Peer] = []
        self.answers = True
        self.ends: Callable[[Peer, int], None] = self.end_well  # a call that has come whole
        self.says: Callable[[bytes], bytes] = lambda request: answer()
        self.greeting = settings()
        self.port = 0
        self.on_connected: Callable[[Peer], None] = self._greet
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.abort()

    def _connection(self) -> Peer:
        triton = self

        class Connection(Peer):
            """Greets whoever comes."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                triton.peers.append(self)
                triton.on_connected(self)

        return Connection(on_ended=lambda peer, stream: self.ends(peer, stream))

    def _greet(self, peer: Peer) -> None:
        if self.greeting:
            peer.send(self.greeting)

    def end_well(self, peer: Peer, stream: int) -> None:
        if self.answers:
            request = peer.streams[stream].messages
            self.answer(stream, self.says(request[0] if request else b""), peer=peer)

    @property
    def peer(self) -> Peer:
        """The only connection."""
        [peer] = self.peers
        return peer

    @property
    def calls(self) -> list[Received]:
        """All streams of all connections, in their order."""
        return [
            received
            for peer in self.peers
            for stream, received in sorted(peer.streams.items())
            if stream
        ]

    def head(self, stream: int, *more: tuple[str, str], peer: Peer | None = None) -> None:
        (peer or self.peer).send(frame(HEADERS, END_HEADERS, stream, block(*HEAD, *more)))

    def data(self, stream: int, payload: bytes, peer: Peer | None = None) -> None:
        (peer or self.peer).send(frame(DATA, 0, stream, payload))

    def end(
        self, stream: int, status: int = 0, *more: tuple[str, str], peer: Peer | None = None
    ) -> None:
        trailers = block(("grpc-status", str(status)), *more)
        (peer or self.peer).send(frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers))

    def answer(self, stream: int, body: bytes | None = None, peer: Peer | None = None) -> None:
        """A whole answer."""
        self.head(stream, peer=peer)
        whole = message(answer() if body is None else body)
        for at in range(0, len(whole), 1 << 14):
            self.data(stream, whole[at : at + (1 << 14)], peer)
        self.end(stream, peer=peer)

    def refuse(self, stream: int, status: int, said: str, peer: Peer | None = None) -> None:
        """A status without an answer (Trailers-Only)."""
        only = block(*HEAD, ("grpc-status", str(status)), ("grpc-message", said))
        (peer or self.peer).send(frame(HEADERS, END_HEADERS | END_STREAM, stream, only))


@dataclass(slots=True)
class Scene:
    """A listener with its pool, the Tritons behind it, and the clients that it got."""

    plane: DataPlane
    pool: GrpcPool
    listener: KServeGrpc
    tritons: Mapping[str, Triton]
    port: int
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

    async def call(self, client: Client, stream: int, body: bytes | None = None) -> Received:
        """One call, from its beginning to its end."""
        client.call(stream, body)
        [received] = await self.over(client, stream)
        return received

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


def play(
    scenario: Callable[[Scene], Awaitable[T]],
    loop: str,
    now: Snapshot,
    *,
    limits: Limits = LIMITS,
    cancel: str = "absorb",
    is_quiet: bool = True,
    services: Mapping[str, Service] = MappingProxyType({}),
    journal: Journal | None = None,
    secure: ssl.SSLContext | None = None,
    **changes: int | float,
) -> T:
    """Act a scenario out, then see that nothing is left of it."""
    limits = replace(limits, **changes)  # type: ignore[arg-type]

    async def act() -> T:
        scene = await _build(now, limits, cancel, services, journal)
        server = await asyncio.get_running_loop().create_server(
            scene.listener.connection, "127.0.0.1", scene.port, ssl=secure
        )
        scene.port = server.sockets[0].getsockname()[1]
        try:
            async with asyncio.timeout(BOUND):
                told = await scenario(scene)
                if is_quiet:
                    await scene.quiet()
                return told
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

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(act())


async def _build(
    now: Snapshot,
    limits: Limits,
    cancel: str,
    services: Mapping[str, Service],
    journal: Journal | None,
) -> Scene:
    tritons = {name: Triton(name) for name in now.replicas}
    replicas = {}
    for name, triton in tritons.items():
        await triton.start()
        replicas[name] = Replica(name, "127.0.0.1", 1, triton.port, 1)
    plane = DataPlane(replace(now, replicas=MappingProxyType(replicas)), journal=journal)
    pool = GrpcPool(limits=limits, connect_timeout=5.0, clock=plane.clock)
    listener = KServeGrpc(
        plane.gateway,
        pool,
        limits=limits,
        cancel=cancel,
        clock=plane.clock,
        is_draining=lambda: False,
        services=services,
    )
    return Scene(plane, pool, listener, tritons, 0)
