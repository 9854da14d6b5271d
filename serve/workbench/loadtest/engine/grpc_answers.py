"""What the answer to a gRPC call means: its outcome, and which version has answered.

| `grpc-status`   | `servegate-error` | outcome                                              |
|-----------------|-------------------|------------------------------------------------------|
| 0               |                   | what the check of the message says                   |
| 4, a deadline   | none              | `timeout`                                            |
| any other       | none              | `grpc_<NAME>`                                        |
| any other       | a code            | `grpc_<NAME>:<code>`                                 |
| none            |                   | as the HTTP status is to be read, else `grpc_UNKNOWN` |

A server writes few different heads, so what one means is remembered. The gateway's trailers differ
in the call's name alone, which is cut out before the look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serve.core.errors import BadRequest
from serve.wire import protobuf
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE
from serve.wire.hpack_blocks import Field, Fields, Memo, string
from serve.wire.http2_stream import Piece
from serve.wire.request_ids import TOLD
from serve.wire.status import DEADLINE_EXCEEDED, GRPC_NAMES, OK, UNAVAILABLE, UNIMPLEMENTED
from serve.workbench.loadtest.record import RIGHT, TIMED_OUT

_UNKNOWN, _PERMISSION_DENIED, _INTERNAL, _UNAUTHENTICATED = 2, 7, 13, 16
_OF_HTTP = {  # doc/http-grpc-status-mapping.md of gRPC
    400: _INTERNAL,
    401: _UNAUTHENTICATED,
    403: _PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    429: UNAVAILABLE,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: UNAVAILABLE,
}
_READ = frozenset((b":status", b"grpc-status", b"servegate-version", b"servegate-error"))
_REMEMBERED = 1024
_LARGEST_REMEMBERED = 2048  # bytes of a block
_NAME_OF_CALL = b"\x00" + string(TOLD)
_LONG = 0x7F  # a length that goes on in further bytes
_MODEL, _VERSION = 0x0A, 0x12  # the first two fields of a `ModelInferResponse`


@dataclass(frozen=True, slots=True)
class HeadFields:
    """What a head or trailers say. `http` is the HTTP status, −1 in trailers."""

    http: int
    status: int
    outcome: str
    decision: str


class GrpcHeads(Memo[HeadFields]):
    """Reads heads and trailers, and remembers them without the gateway's names of calls."""

    def __init__(self) -> None:
        fields = Fields(lambda name: name in _READ)
        super().__init__(fields, lambda read: _said(fields, read))
        self._nameless: dict[bytes, HeadFields] = {}

    def learn(self, block: bytes, start: int) -> HeadFields:
        """See `Memo`."""
        at = block.find(_NAME_OF_CALL)
        length = at + len(_NAME_OF_CALL)
        if at < 0 or length >= len(block) or block[length] & 0x7F == _LONG:
            return super().learn(block, start)
        rest = block[:at] + block[length + 1 + (block[length] & 0x7F) :]
        known = self._nameless.get(rest)
        if known is None:
            known = super().learn(block, start)
            if len(self._nameless) >= _REMEMBERED:
                self._nameless.clear()
            if not start and len(rest) <= _LARGEST_REMEMBERED:
                self._nameless[rest] = known
        return known


class Versions:
    """Reads the version in the head of a `ModelInferResponse`, and remembers that head."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def read(self, answer: bytes, start: int) -> str:
        """The version that the message names which begins at `start`; empty for none."""
        try:
            if answer[start] != _MODEL:
                return version_of(answer[start:])
            place = start + 2 + answer[start + 1]
            if answer[place] != _VERSION:
                return version_of(answer[start:])
            head = answer[start : place + 2 + answer[place + 1]]
        except IndexError:
            return version_of(answer[start:])
        known = self._known.get(head)
        if known is None:
            known = version_of(answer[start:])
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[head] = known
        return known


def version_of(answer: bytes) -> str:
    """The version that a `ModelInferResponse` names; empty for what is none."""
    try:
        found = protobuf.names(answer, 0, len(answer))
    except BadRequest:
        return ""
    return found[1] if found else ""


def whole(pieces: Sequence[Piece]) -> bytes | None:
    """The one message of an answer, with its prefix; None where there is not exactly one.

    It must not be compressed: the sender says nowhere that it may.
    """
    message = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
    if len(message) < PREFIX_SIZE:
        return None
    flag, length = PREFIX.unpack_from(message)
    return message if not flag and length == len(message) - PREFIX_SIZE else None


def _said(fields: Fields, read: list[Field]) -> HeadFields:
    told = {one[0].name: fields.value(one) for one in read if one[0].kind}
    http = _number(told[b":status"]) if b":status" in told else -1
    if b"grpc-status" in told:
        status = _number(told[b"grpc-status"])
    else:
        status = _OF_HTTP.get(http, _UNKNOWN)
    if not OK <= status < len(GRPC_NAMES):
        status = _UNKNOWN
    code = told.get(b"servegate-error", b"").decode("latin-1")
    return HeadFields(
        http, status, _outcome(status, code), told.get(b"servegate-version", b"").decode("latin-1")
    )


def _outcome(status: int, code: str) -> str:
    if status == OK:
        return RIGHT
    if status == DEADLINE_EXCEEDED and not code:
        return TIMED_OUT
    return f"grpc_{GRPC_NAMES[status]}" + (f":{code}" if code else "")


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) <= 3 else _UNKNOWN
