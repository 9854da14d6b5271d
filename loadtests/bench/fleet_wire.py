"""As much HTTP/2 as a fake Triton needs: unary gRPC calls of one client, answered from memory.

It takes CPU time from what is measured beside it, so it does as little as it can: clients are told
to use no table (RFC 7541 4.2), so that a header block always says the same and is read once;
its windows are never used up; an answer is three frames in one write. Not a server for others.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

import hpack

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = (
    *(0, 1, 3, 4),
    *(6, 7, 8, 9),
)
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITISED = 1, 1, 4, 8, 0x20
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">IBI")
_TABLE_SIZE, _STREAM_WINDOW, _MAX_STREAMS = 1, 4, 3
_WIDEST = (1 << 31) - 1
_FRAME = 16_384  # bytes, the largest that any peer takes
_KNOWN = 4096  # header blocks that are remembered


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One whole frame."""
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def _block(*fields: tuple[str, str]) -> bytes:
    encoder = hpack.Encoder()
    plain = [hpack.NeverIndexedHeaderTuple(*field) for field in fields]
    return bytes(encoder.encode(plain, huffman=False))


_OPENING = frame(
    _SETTINGS,
    0,
    0,
    struct.pack(">HIHIHI", _TABLE_SIZE, 0, _STREAM_WINDOW, _WIDEST, _MAX_STREAMS, 1000),
) + frame(_WINDOW, 0, 0, struct.pack(">I", _WIDEST - 65_535))
_CONTENT = ("content-type", "application/grpc")
_GOOD = _block((":status", "200"), _CONTENT)
_DONE = _block(("grpc-status", "0"))

Reply = Callable[[bytes], None]
Answer = Callable[[str, str, bytes, "Grpc", int], bytes | None]


class Refused(Exception):
    """An answer that is an error; `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Grpc(asyncio.Protocol):
    """One connection.

    `answer` gets the address that was called, the method, the message, this connection and the
    number of the stream; it gives the message of the answer, or None and calls `reply` later. It
    may raise `Refused`.
    """

    _paths: dict[bytes, str] = {}  # noqa: RUF012 - what blocks mean, for all connections

    def __init__(self, answer: Answer, here: set["Grpc"]) -> None:
        self._answer = answer
        self._here = here
        self._rest = b""
        self._blocks: dict[int, tuple[bytes, int]] = {}  # unfinished, by stream
        self._calls: dict[int, tuple[str, bytearray]] = {}  # method, what came of the message
        self._window = 65_535
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what is expected."""
        self._transport = cast(asyncio.Transport, transport)
        self.address = transport.get_extra_info("sockname")[0]
        self._here.add(self)
        self._transport.write(_OPENING)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone."""
        self._here.discard(self)
        self._transport = None

    def abort(self) -> None:
        """As if the server had been killed."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Any part of any frames."""
        data = self._rest + data if self._rest else data
        at = 0
        if data.startswith(_PREFACE[: len(data)]):
            if len(data) < len(_PREFACE):
                self._rest = data
                return
            at = len(_PREFACE)
        while len(data) - at >= 9:
            word, flags, stream = _HEAD.unpack_from(data, at)
            end = at + 9 + (word >> 8)
            if end > len(data):
                break
            self._on_frame(word & 0xFF, flags, stream, data[at + 9 : end])
            at = end
        self._rest = data[at:]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (_HEADERS, _CONTINUATION):
            self._on_head(kind, flags, stream, payload)
        elif kind == _DATA:
            call = self._calls.get(stream)
            if call is not None:
                call[1].extend(_unpadded(payload, flags))
                if flags & _END_STREAM:
                    self._on_call(stream)
        elif kind == _SETTINGS and not flags & _ACK:
            self._write(frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._write(frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW and not stream:
            self._window += int.from_bytes(payload, "big")
            self._pump()
        elif kind == _RST_STREAM:
            self._calls.pop(stream, None)
        elif kind == _GOAWAY and self._transport is not None:
            self._transport.close()

    def _on_head(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _HEADERS:
            payload = _unpadded(payload, flags)
            payload = payload[5:] if flags & _PRIORITISED else payload
        before, ends = self._blocks.pop(stream, (b"", flags & _END_STREAM))
        block = before + payload
        if not flags & _END_HEADERS:
            self._blocks[stream] = block, ends
            return
        self._calls[stream] = self._path(block), bytearray()
        if ends:
            self._on_call(stream)

    def _path(self, block: bytes) -> str:
        known = self._paths.get(block)
        if known is None:
            if len(self._paths) >= _KNOWN:
                self._paths.clear()
            fields = dict(hpack.Decoder().decode(block))
            known = self._paths[block] = str(fields[":path"])
        return known

    def _on_call(self, stream: int) -> None:
        path, body = self._calls[stream]
        method = path.rpartition("/")[2]
        try:
            said = self._answer(self.address, method, bytes(body[5:]), self, stream)
        except Refused as error:
            self.refuse(stream, error.code, str(error))
        else:
            if said is not None:
                self.reply(stream, said)

    def reply(self, stream: int, message: bytes) -> None:
        """The answer of a call, now or later; nobody hears it who has gone."""
        if self._calls.pop(stream, None) is None:
            return
        self._waiting.append((stream, b"\0" + struct.pack(">I", len(message)) + message))
        self._pump()

    def refuse(self, stream: int, code: int, why: str) -> None:
        """An error instead of an answer."""
        if self._calls.pop(stream, None) is not None:
            block = _block((":status", "200"), _CONTENT, ("grpc-status", str(code)))
            block += _block(("grpc-message", why))
            self._write(frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, block))

    def _pump(self) -> None:
        """Send the answers for which there is room: the connection's window counts, no other."""
        while self._waiting and len(self._waiting[0][1]) <= self._window:
            stream, body = self._waiting.popleft()
            self._window -= len(body)
            pieces = [body[at : at + _FRAME] for at in range(0, len(body), _FRAME)]
            self._write(
                b"".join(
                    [
                        frame(_HEADERS, _END_HEADERS, stream, _GOOD),
                        *(frame(_DATA, 0, stream, piece) for piece in pieces),
                        frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, _DONE),
                    ]
                )
            )

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _unpadded(payload: bytes, flags: int) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
