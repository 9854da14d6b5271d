"""Heads of gRPC over HTTP/2: what a request says, what an answer says, and which fields go on.

What a head means is made once for every distinct block and remembered (`hpack_blocks`), so all of
this is values. Fields that nobody reads go on as they were encoded.

| field                                  | request                    | answer              |
|----------------------------------------|----------------------------|---------------------|
| :method :path content-type             | read                       |                     |
| te                                     | checked, written again     |                     |
| grpc-timeout grpc-encoding             | read, written again        | goes on             |
| content-length                         | read, stays behind         | goes on             |
| grpc-accept-encoding                   | goes on, where it may      | goes on             |
| user-agent host, other grpc-*          | stay behind                | go on               |
| :status grpc-status grpc-message       |                            | read, go on         |
| connection and its kind, capitals      | malformed                  | stay behind         |
| everything else                        | goes on                    | goes on             |
"""

import re
from dataclasses import dataclass, field
from math import inf
from urllib.parse import quote_from_bytes, unquote_to_bytes

from serve.core.calls import Reply, Verb
from serve.core.errors import BadRequest, HeadTooLarge, NotServed, ServegateError
from serve.wire import kserve_grpc
from serve.wire.hpack_blocks import Field, Fields, Memo, literal, size_of
from serve.wire.http2 import Malformed

PASS, READ, PSEUDO, DROP, BAD = range(5)
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_READ_AND_PASSED = frozenset({b"content-type", b"triton_grpc_error"})
_READ = _READ_AND_PASSED | {
    b"te", b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"
}  # fmt: skip
_READ_OF_ANSWER = frozenset({b":status", b"grpc-status", b"grpc-message"})
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_MEDIA = re.compile(rb"application/grpc([+;].*)?", re.DOTALL)
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENCODINGS = frozenset({b"", b"identity", b"gzip", b"deflate"})
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

POST_OVER_HTTP = b"\x83\x86"  # the constants `:method: POST` and `:scheme: http`
TE = literal(b"te", b"trailers")
CONTENT_TYPE = literal(b"content-type", b"application/grpc")
OK_HEAD = b"\x88" + CONTENT_TYPE
OK_TRAILERS = literal(b"grpc-status", b"0")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What a request's head says. `block` are the fields for the next hop, from `:path` on.

    `plain` is the block without `grpc-accept-encoding`, for answers that have to be read.
    `status` is the HTTP status to refuse it with, or 0; `error` is the gRPC way to refuse it.
    `timeout` is in seconds; `length` is the Content-Length, -1 without one.
    """

    method: str
    verb: Verb | None
    block: bytes
    plain: bytes
    timeout: float
    encoding: bytes
    length: int
    ends_on_error: bool
    status: int
    error: ServegateError | None
    is_unary: bool = field(init=False)
    """Whether it opens a unary call to be passed on; nothing is wrong with it then."""

    def __post_init__(self) -> None:
        """Written down once, because every call asks for it."""
        fine = not self.status and self.error is None and self.verb is not None
        object.__setattr__(self, "is_unary", fine and self.verb is not Verb.STREAM)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What the head or the trailers of an answer say. `block` is what goes to the client.

    `status` is the gRPC status, UNKNOWN where there is none; `http` is the HTTP status, -1 in
    trailers; `said` is the field of the block that holds the message.
    """

    block: bytes
    http: int
    status: int
    message: str
    said: bytes

    def with_message(self, message: str) -> bytes:
        """The block with another message in the place of its own."""
        return self.block.replace(self.said, message_field(message), 1)


def request_memo(limit: int) -> Memo[RequestHead]:
    """Reads requests; a header list beyond `limit` bytes is refused."""
    fields = Fields(_kind_in_request)

    def make(read: list[Field]) -> RequestHead:
        return _request(fields, read, limit)

    return Memo(fields, make)


def answer_memo() -> Memo[AnswerHead]:
    """Reads answers."""
    fields = Fields(_kind_in_answer)

    def make(read: list[Field]) -> AnswerHead:
        return _answer(fields, read)

    return Memo(fields, make)


def error_block(reply: Reply, *, with_head: bool) -> bytes:
    """A status as trailers; `with_head` makes them a whole answer (Trailers-Only)."""
    block = [OK_HEAD if with_head else b"", literal(b"grpc-status", b"%d" % reply.status)]
    if reply.message:
        block.append(message_field(reply.message))
    block += [literal(name, value) for name, value in reply.headers]
    return b"".join(block)


def status_block(status: int) -> bytes:
    """An answer of HTTP itself, without a body."""
    return literal(b":status", b"%d" % status)


def timeout_field(seconds: float) -> bytes:
    """`grpc-timeout`, rounded to milliseconds, at least one."""
    return literal(b"grpc-timeout", b"%dm" % min(max(1, round(seconds * 1000)), 99_999_999))


def message_field(message: str) -> bytes:
    """`grpc-message`."""
    return literal(b"grpc-message", percent_encoded(message))


def percent_encoded(message: str) -> bytes:
    """A status message as gRPC writes it: all but printable ASCII, and `%`, percent-encoded."""
    return quote_from_bytes(message.encode(), safe=_PRINTABLE).encode()


def percent_decoded(message: bytes) -> str:
    """A status message as people read it."""
    return unquote_to_bytes(message).decode("utf-8", "replace")


# --- requests ------------------------------------------------------------------------------------


def _kind_in_request(name: bytes) -> int:
    if name in _PSEUDO:
        return PSEUDO
    if name in _READ:
        return READ
    if name in _CONNECTION or not _NAME.fullmatch(name):
        return BAD
    if name in (b"user-agent", b"host") or name.startswith(b"grpc-"):
        return DROP
    return PASS


def _request(fields: Fields, read: list[Field], limit: int) -> RequestHead:
    known: dict[bytes, bytes] = {}
    rest, path, accepts = [TE], b"", b""
    is_regular = False
    for one in read:
        name, value = one
        kind = name.kind
        if kind == PASS:
            is_regular = True
            rest += (name.literal, value)
        elif kind == PSEUDO:
            if is_regular or name.name in known:
                raise Malformed("a pseudo-header behind others, or twice")
            known[name.name] = fields.value(one)
            if name.name == b":path":
                path = name.literal + value
        elif kind == READ:
            is_regular = True
            known[name.name] = fields.value(one)
            if name.name in _READ_AND_PASSED:
                rest += (name.literal, value)
            elif name.name == b"grpc-accept-encoding":
                accepts += name.literal + value
        elif kind == BAD:
            raise Malformed(f"the field {name.name!r}")
        else:
            is_regular = True
    error = _check(known)
    if size_of(read) > limit:
        error = HeadTooLarge(limit)
    return _request_head(known, path + b"".join(rest), accepts, error)


def _request_head(
    known: dict[bytes, bytes], block: bytes, accepts: bytes, error: ServegateError | None
) -> RequestHead:
    method = known[b":path"].decode("latin-1")
    verb = None
    if method not in (kserve_grpc.SERVER_LIVE, kserve_grpc.SERVER_READY):
        try:
            verb = kserve_grpc.parse(method)
        except ServegateError as unknown:
            error = error or unknown
    length = known.get(b"content-length", b"")
    return RequestHead(
        method=method,
        verb=verb,
        block=block + accepts,
        plain=block,
        timeout=_seconds(known.get(b"grpc-timeout", b"")),
        encoding=known.get(b"grpc-encoding", b""),
        length=int(length) if length else -1,
        ends_on_error=known.get(b"triton_grpc_error", b"").lower() == b"true",
        status=_http_status(known),
        error=error,
    )


def _check(known: dict[bytes, bytes]) -> ServegateError | None:
    """`Malformed` for what HTTP/2 forbids, an error for what gRPC does."""
    if not {b":method", b":scheme", b":path"} <= known.keys() or not known[b":path"]:
        raise Malformed("a pseudo-header is missing")
    if known.get(b"te", b"trailers") != b"trailers":
        raise Malformed("te that is not trailers")
    length = known.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18:
        raise Malformed("content-length that is no number")
    timeout = known.get(b"grpc-timeout")
    if timeout is not None and not _TIMEOUT.fullmatch(timeout):
        return BadRequest(f"grpc-timeout '{timeout.decode('latin-1')}' is no time")
    encoding = known.get(b"grpc-encoding", b"")
    if encoding not in _ENCODINGS:
        return NotServed(
            f"messages in the encoding '{encoding.decode('latin-1')}' are not read",
            try_this="gzip, deflate or identity",
        )
    return None


def _http_status(known: dict[bytes, bytes]) -> int:
    if known[b":method"] != b"POST":
        return 405
    return 0 if _MEDIA.fullmatch(known.get(b"content-type", b"")) else 415


def _seconds(timeout: bytes) -> float:
    match = _TIMEOUT.fullmatch(timeout)
    return int(match[1]) * _UNITS[match[2]] if match else inf


# --- answers -------------------------------------------------------------------------------------


def _kind_in_answer(name: bytes) -> int:
    if name in _READ_OF_ANSWER:
        return READ
    return DROP if name in _CONNECTION or not _NAME.fullmatch(name) else PASS


def _answer(fields: Fields, read: list[Field]) -> AnswerHead:
    known: dict[bytes, bytes] = {}
    block: list[bytes] = []
    said = b""
    for one in read:
        name, value = one
        if name.kind == READ:
            known[name.name] = fields.value(one)
            if name.name == b"grpc-message":
                said = name.literal + value
        if name.kind != DROP:
            block += (name.literal, value)
    return AnswerHead(
        block=b"".join(block),
        http=_number(known[b":status"]) if b":status" in known else -1,
        status=_number(known.get(b"grpc-status", b"")),
        message=percent_decoded(known.get(b"grpc-message", b"")),
        said=said,
    )


def _number(value: bytes) -> int:
    """A status; one that is no number is UNKNOWN (2), as gRPC says."""
    return int(value) if value.isdigit() and len(value) <= 3 else 2
