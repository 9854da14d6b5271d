"""Heads of gRPC requests: what a request says, and which of its fields go on (see `grpc_heads`)."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from serve.core.access import is_ours
from serve.core.calls import Headers, Verb
from serve.core.errors import BadRequest, HeadTooLarge, NotServed, ServegateError
from serve.wire import kserve_grpc, request_ids
from serve.wire.grpc_heads import BAD, CONNECTION, DROP, KEPT, NAME, PASS, PSEUDO, READ, TE
from serve.wire.hpack_blocks import Field, Fields, literal, size_of, string, text
from serve.wire.http2 import ConnectionFault, Malformed
from serve.wire.kserve_http import is_claim

_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_NO_METADATA = frozenset({b":path", b"te", b"content-type"})
_READ_AND_PASSED = frozenset({b"content-type", b"triton_grpc_error"})
_READ = _READ_AND_PASSED | {
    b"authorization", b"te", b"content-length", b"grpc-timeout", b"grpc-encoding",
    b"grpc-accept-encoding",
}  # fmt: skip
VARYING = frozenset({request_ids.GIVEN, b"traceparent"})
_MEDIA = re.compile(rb"application/grpc([+;].*)?", re.DOTALL)
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENCODINGS = frozenset({b"", b"identity", b"gzip", b"deflate"})
_TOLD = b"\x00" + string(request_ids.TOLD)


@dataclass(slots=True)
class RequestHead:
    """What a request's head says; not changed once it is made. (Not frozen: it costs too much.)

    `block` are the fields for the next hop, from `:path` on, and `plain` are those without
    `grpc-accept-encoding`, for answers that have to be read. Both end with the fields that vary.
    `status` is the HTTP status to refuse it with, or 0; `error` is the gRPC way to refuse it.
    `timeout` is in seconds; `length` is the Content-Length, -1 without one. `authorization` is the
    credential, which is in no block when it is a key of ours. `told_id` is the trailer that names
    the call as its caller did, empty without a name that is fit for it; `traceparent` is encoded.
    """

    method: str
    verb: Verb | None
    block: bytes = field(repr=False)
    plain: bytes = field(repr=False)
    timeout: float
    encoding: bytes
    length: int
    ends_on_error: bool
    authorization: bytes = field(repr=False)
    told_id: bytes
    traceparent: bytes
    status: int
    error: ServegateError | None
    is_unary: bool = field(init=False)
    """Whether it opens a unary call to be passed on; nothing is wrong with it then."""

    def __post_init__(self) -> None:
        """Written down once, because every call asks for it."""
        fine = not self.status and self.error is None and self.verb is not None
        self.is_unary = fine and self.verb is not Verb.STREAM


class GrpcRequestReader:
    """Reads requests; a header list beyond `limit` bytes is refused.

    The methods in `own` are answered by the gateway itself: they have no verb and are no error.
    """

    def __init__(self, limit: int, own: Collection[str] = kserve_grpc.OWN) -> None:
        self.fields = Fields(_kind_in_request)
        self.limit = limit
        self._own = own

    def make(self, read: list[Field]) -> RequestHead:
        """What these fields say; `Malformed` when they are no request."""
        return _request(self.fields, read, self.limit, self._own)


def metadata(head: RequestHead, fields: Fields) -> Headers:
    """What a request says beyond what HTTP and gRPC need, decoded."""
    pairs = ((one[0].name, fields.value(one)) for one in fields.split(head.plain))
    return tuple(pair for pair in pairs if pair[0] not in _NO_METADATA)


def made_up_ids(word: bytes) -> bytes:
    """A template of the trailer that names a call, for the `%` operator and a number."""
    return literal(request_ids.TOLD, word + b"-%08d" % 0)[:-8] + b"%08x"


def readable(value: bytes) -> str:
    """A value that was kept as it was encoded; empty where it is broken, which nobody has seen."""
    try:
        return text(value).decode("latin-1") if value else ""
    except ConnectionFault:
        return ""


def told_id(trailer: bytes) -> str:
    """The name of a call, out of the trailer that tells it."""
    return text(trailer[len(_TOLD) :]).decode("latin-1")


def _kind_in_request(name: bytes) -> int:
    if name in _PSEUDO:
        return PSEUDO
    if name in _READ:
        return READ
    if name in VARYING:
        return KEPT
    if name in CONNECTION or not NAME.fullmatch(name):
        return BAD
    if name in (b"user-agent", b"host") or name.startswith(b"grpc-") or is_claim(name):
        return DROP
    return PASS


def _request(fields: Fields, read: list[Field], limit: int, own: Collection[str]) -> RequestHead:
    known: dict[bytes, bytes] = {}  # decoded, but for those that are kept
    rest, path, accepts, credential = [TE], b"", b"", b""
    is_regular = False
    for one in read:
        name, value = one
        kind = name.kind
        if kind == PASS:
            is_regular = True
            rest += (name.literal, value)
        elif kind == PSEUDO:
            if is_regular or name.name in known:
                raise Malformed("a pseudo-header after other headers, or twice")
            known[name.name] = fields.value(one)
            if name.name == b":path":
                path = name.literal + value
        elif kind == READ:
            is_regular = True
            known[name.name] = decoded = fields.value(one)
            if name.name in _READ_AND_PASSED:
                rest += (name.literal, value)
            elif name.name == b"grpc-accept-encoding":
                accepts += name.literal + value
            elif name.name == b"authorization":
                if is_ours(decoded):
                    credential = decoded
                else:
                    rest += (name.literal, value)
        elif kind == KEPT:
            is_regular = True
            known[name.name] = value
            rest += (name.literal, value)
        elif kind == BAD:
            raise Malformed(f"the field {name.name!r}")
        else:
            is_regular = True
    error = _check(known)
    if size_of(read) > limit:
        error = HeadTooLarge(limit)
    if credential:
        known[b"authorization"] = credential
    return _request_head(known, path + b"".join(rest), accepts, error, own)


def _request_head(
    known: dict[bytes, bytes],
    block: bytes,
    accepts: bytes,
    error: ServegateError | None,
    own: Collection[str],
) -> RequestHead:
    method = known[b":path"].decode("latin-1")
    verb = None
    if method not in own:
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
        authorization=known.get(b"authorization", b""),
        told_id=told(known.get(request_ids.GIVEN)),
        traceparent=known.get(b"traceparent", b""),
        status=_http_status(known),
        error=error,
    )


def told(given: bytes | None) -> bytes:
    """The trailer with the caller's own name of the call, as it was encoded."""
    if given is None:
        return b""
    name = text(given)
    return _TOLD + given if name and request_ids.usable(name) == name else b""


def _check(known: dict[bytes, bytes]) -> ServegateError | None:
    """`Malformed` for what HTTP/2 forbids, an error for what gRPC does."""
    if not {b":method", b":scheme", b":path"} <= known.keys() or not known[b":path"]:
        raise Malformed("a pseudo-header is missing")
    if known.get(b"te", b"trailers") != b"trailers":
        raise Malformed("te has another value than trailers")
    length = known.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18:
        raise Malformed("the content-length is not a number")
    timeout = known.get(b"grpc-timeout")
    if timeout is not None and not _TIMEOUT.fullmatch(timeout):
        return BadRequest(f"grpc-timeout '{timeout.decode('latin-1')}' is not a duration")
    encoding = known.get(b"grpc-encoding", b"")
    if encoding not in _ENCODINGS:
        return NotServed(
            f"the message encoding '{encoding.decode('latin-1')}' is not supported",
            try_this="use gzip, deflate or identity",
        )
    return None


def _http_status(known: dict[bytes, bytes]) -> int:
    if known[b":method"] != b"POST":
        return 405
    return 0 if _MEDIA.fullmatch(known.get(b"content-type", b"")) else 415


def _seconds(timeout: bytes) -> float:
    match = _TIMEOUT.fullmatch(timeout)
    return int(match[1]) * _UNITS[match[2]] if match else inf
