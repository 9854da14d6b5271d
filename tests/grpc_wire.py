"""HTTP/2 peers in raw frames: a client and a Triton that do what a test tells them, and no more.

They are written without the code under test, but for the numbers of frame types, and read header
blocks with the `hpack` library. All that a scene consists of runs on one loop, over real sockets.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import hpack
import uvloop
from tritonclient.grpc import service_pb2

from serve.core.limits import Limits

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
    request.raw_input_contents.append(_tensor(size))
    return bytes(request.SerializeToString())


def answer(model: str = "m", size: int = 8, **more: str) -> bytes:
    """A `ModelInferResponse` whose tensor holds `size` bytes."""
    response = service_pb2.ModelInferResponse(model_name=model, model_version="1", **more)
    response.raw_output_contents.append(_tensor(size))
    return bytes(response.SerializeToString())


def _tensor(size: int) -> bytes:
    return (bytes(range(256)) * -(-size // 256))[:size]


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
        found, body, at = [], bytes(self.body), 5
        while at <= len(body) and (end := at + int.from_bytes(body[at - 4 : at], "big")) <= len(
            body
        ):
            found.append(body[at:end])
            at = end + 5
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
        rest = (self._rest + data).removeprefix(PREFACE)
        at = 0
        while len(rest) - at >= 9:
            end = at + 9 + int.from_bytes(rest[at : at + 3], "big")
            if end > len(rest):
                break
            stream = int.from_bytes(rest[at + 5 : at + 9], "big")
            one = Frame(rest[at + 3], rest[at + 4], stream, rest[at + 9 : end])
            at = end
            self.frames.append(one)
            self._take(one)
        self._rest = rest[at:]

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

    @property
    def messages(self) -> list[bytes]:
        """All messages that have come, stream by stream."""
        return [one for call in self.calls for one in call.messages]

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
        """A whole answer, in one write as servers send it."""
        whole = message(answer() if body is None else body)
        pieces = [whole[at : at + (1 << 14)] for at in range(0, len(whole), 1 << 14)]
        (peer or self.peer).send(
            frame(HEADERS, END_HEADERS, stream, block(*HEAD)),
            *(frame(DATA, 0, stream, piece) for piece in pieces),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, block(("grpc-status", "0"))),
        )

    def refuse(self, stream: int, status: int, said: str, peer: Peer | None = None) -> None:
        """A status without an answer (Trailers-Only)."""
        only = block(*HEAD, ("grpc-status", str(status)), ("grpc-message", said))
        (peer or self.peer).send(frame(HEADERS, END_HEADERS | END_STREAM, stream, only))
