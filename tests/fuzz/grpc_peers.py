"""The Tritons behind the gateway: one that behaves, and one that says what it is told to say.

The first answers as the id of the request asks it to:

| the id          | Triton                                      |
|-----------------|---------------------------------------------|
| `@stop`         | refuses: UNAVAILABLE, it is stopping        |
| `@unknown`      | NOT_FOUND, the model is not known           |
| `@refused`      | RST_STREAM with REFUSED_STREAM              |
| `@reset`        | RST_STREAM with INTERNAL_ERROR              |
| `@goaway`       | GOAWAY below the call                       |
| `@eof`          | closes                                      |
| `@large`        | answers with 40 KB                          |
| `@silent`       | never answers                               |
| anything else   | answers                                     |
"""

from struct import pack
from typing import Any, Protocol

from fuzz.http2_peers import (
    DATA,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST,
    SETTINGS,
    WINDOW,
    Grants,
    Seen,
    Watch,
    frame,
)
from fuzz.wires import Wire
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

_INFER = b"/inference.GRPCInferenceService/ModelInfer"
_STREAM = b"/inference.GRPCInferenceService/ModelStreamInfer"
_OK = b"\x88\x00\x0ccontent-type\x10application/grpc"
_SMALL_WINDOW = 200  # bytes that a Triton on a narrow wire takes of a stream at a time
_TARGETS = {("m", "1"), ("m", "2"), ("r--0a1b", "3"), ("s", "1")}  # what the fleet has


class Scene(Protocol):
    """Where Tritons write down what they have executed."""

    is_narrow: bool
    executed: int
    streamed: list[bytes]


class Triton:
    """One connection at a Triton: it watches what the gateway sends, and answers."""

    def __init__(self, wire: Wire, scene: Scene) -> None:
        self.wire = wire
        self.watch = Watch()
        self._scene = scene
        self._preface = PREFACE
        self._said: list[bytes] = []
        self._answered: set[int] = set()
        self._taken: dict[int, int] = {}
        settings = {1: 0, 4: _SMALL_WINDOW} if scene.is_narrow else {3: 20}
        self.watch.says(settings)
        self._say(frame(SETTINGS, 0, 0, b"".join(pack(">HI", *one) for one in settings.items())))

    def play(self) -> bool:
        """Read what has come and answer it; whether anything happened."""
        data = self.wire.take()
        if data and self._preface:
            start = data[: len(self._preface)]
            assert self._preface.startswith(start)
            self._preface, data = self._preface[len(start) :], data[len(start) :]
        happened = bool(data)
        for number, seen, what in self.watch.read(data):
            assert number > 0
            if what == "data" and seen.data:
                self._give_back(number, seen)
            if seen.has_ended and number not in self._answered:
                self._answered.add(number)
                self._answer(number, seen)
        while self.watch.owes_acknowledgement:
            self.watch.owes_acknowledgement -= 1
            self._say(frame(SETTINGS, 1, 0))
        while self._said and self.wire.may_say:
            self.wire.say(self._said.pop(0))
            happened = True
        return happened

    def _say(self, data: bytes) -> None:
        self._said.append(data)

    def _give_back(self, number: int, seen: Seen) -> None:
        taken = len(seen.data) - self._taken.get(number, 0)
        self._taken[number] = len(seen.data)
        if taken:
            for stream in (0, number):
                self.watch.grants(stream, taken)
                self._say(frame(WINDOW, 0, stream, pack(">I", taken)))

    def _answer(self, number: int, seen: Seen) -> None:
        path = _check_head(seen)
        if path == _STREAM:
            self._answer_stream(number, seen.data)
            return
        body = _only_message(seen.data)
        identity, message = "", b""
        if path == _INFER:
            try:
                asked = service_pb2.ModelInferRequest.FromString(body)
            except DecodeError:
                self._end(number, 3, "Unable to parse request")
                return
            executed = (asked.model_name, asked.model_version)
            assert executed in _TARGETS, f"executed: {executed}"
            identity = asked.id
            message = _reply(asked)
        self._do(number, identity, message, path == _INFER)

    def _answer_stream(self, number: int, data: bytes) -> None:
        """One answer for each message; a stream may end inside a message when it is broken off."""
        self._say(frame(HEADERS, 4, number, _OK))
        while len(data) >= 5:
            size = 5 + int.from_bytes(data[1:5], "big")
            if len(data) < size:
                break
            self._scene.streamed.append(data[:size])
            try:
                asked = service_pb2.ModelInferRequest.FromString(_only_message(data[:size]))
            except DecodeError:
                break
            executed = (asked.model_name, asked.model_version)
            assert executed in _TARGETS, f"executed: {executed}"
            said = service_pb2.ModelStreamInferResponse()
            said.infer_response.ParseFromString(_reply(asked))
            body = said.SerializeToString()
            self._say(frame(DATA, 0, number, pack(">BI", 0, len(body)) + body))
            data = data[size:]
        self._say(frame(HEADERS, 5, number, b"\x00\x0bgrpc-status\x010"))

    def _do(self, number: int, identity: str, message: bytes, is_infer: bool) -> None:
        if identity == "@stop":
            self._end(number, 14, "Server not ready")
        elif identity == "@unknown":
            self._end(number, 5, "Request for unknown model: 'm' is not found")
        elif identity in ("@refused", "@reset"):
            self._say(frame(RST, 0, number, pack(">I", 7 if identity == "@refused" else 2)))
        elif identity == "@goaway":
            self._say(frame(GOAWAY, 0, 0, pack(">II", max(0, number - 2), 0)))
        elif identity == "@eof":
            self._said.clear()
            self.wire.end()
        elif identity != "@silent":
            self._scene.executed += is_infer
            self._say(frame(HEADERS, 4, number, _OK))
            body = pack(">BI", 0, len(message)) + message
            for at in range(0, len(body), 5000):
                self._say(frame(DATA, 0, number, body[at : at + 5000]))
            self._say(frame(HEADERS, 5, number, b"\x00\x0bgrpc-status\x010"))

    def _end(self, number: int, status: int, message: str = "") -> None:
        said = message.encode()
        block = _OK + b"\x00\x0bgrpc-status%c%d" % (len(str(status)), status)
        block += b"\x00\x0cgrpc-message%c%b" % (len(said), said)
        self._say(frame(HEADERS, 5, number, block))


class ScriptedTriton:
    """One connection at a Triton that says these bytes, whatever it is told.

    One that `begins_well` says SETTINGS first and waits for the calls.
    """

    def __init__(self, wire: Wire, pieces: list[bytes], *, begins_well: bool) -> None:
        self.wire = wire
        self.watch = Watch()
        self._grants = Grants(self.watch, b"")
        self._pieces = list(pieces)
        self._preface = PREFACE
        self._waits = 0
        if begins_well:
            self._pieces.insert(0, frame(SETTINGS, 0, 0))
            self._waits = 4  # turns
        self._whole = len(self._pieces)

    def play(self) -> bool:
        """Say the next piece; at the end, close."""
        data = self.wire.take()
        if data and self._preface:
            start = data[: len(self._preface)]
            self._preface, data = self._preface[len(start) :], data[len(start) :]
        for _ in self.watch.read(data):
            pass
        if not self.wire.may_say:
            return bool(data)
        if self._pieces:
            if len(self._pieces) == self._whole - 1 and self._waits:
                self._waits -= 1
                return True
            piece = self._pieces.pop(0)
            self._grants.read(piece)
            self.wire.say(piece)
        else:
            self.wire.end()
        return True


def _check_head(seen: Seen) -> bytes:
    """What a Triton gets is a good request of gRPC; its path."""
    head = seen.heads[0]
    names = [name for name, _ in head]
    for name in (b":method", b":scheme", b":path", b":authority", b"te", b"content-type"):
        assert names.count(name) == 1, head
    known = dict(head)
    assert (known[b":method"], known[b"te"]) == (b"POST", b"trailers")
    assert known[b"content-type"].startswith(b"application/grpc"), head
    assert names.count(b"grpc-timeout") <= 1 and b"grpc-encoding" not in names, head
    assert known[b":path"].startswith(b"/inference.GRPCInferenceService/"), head
    return known[b":path"]


def _only_message(data: bytes) -> bytes:
    assert len(data) >= 5 and data[0] == 0, data[:10]
    assert len(data) == 5 + int.from_bytes(data[1:5], "big"), "the prefix is not the length"
    return data[5:]


def _reply(asked: Any) -> bytes:
    reply = service_pb2.ModelInferResponse(
        model_name=asked.model_name, model_version=asked.model_version, id=asked.id
    )
    if asked.id == "@large":
        reply.raw_output_contents.append(bytes(40_000))
    return bytes(reply.SerializeToString())
