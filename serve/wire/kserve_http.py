"""KServe v2 over HTTP: request paths and heads, read as Triton reads them.

Triton never percent-decodes: a path is matched as its raw bytes, query strings are ignored, and a
trailing slash is another path. A version segment may also be a label here, which no path of Triton
is: Triton's versions are numbers.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from serve.core.access import is_ours
from serve.core.calls import PREDICTIONS, Headers, Verb
from serve.core.errors import BadRequest, ExpectationFailed, MethodNotAllowed, NotHere
from serve.wire import management, unserved
from serve.wire.request_ids import GIVEN, usable

_MODEL = re.compile(
    rb"^/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+|[A-Za-z_][^/]*))?"
    rb"(?:/(?P<verb>infer|generate|generate_stream|ready|config|stats))?\Z"
)
_INDEX = re.compile(rb"^/v2/repository/([^/]+/)?index\Z")
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OURS = frozenset({b"host", b"content-length", b"expect"})  # every hop writes its own
# Only a gateway may say these to a Triton: a caller could claim anything in them.
_CLAIMS = (b"servegate-", b"x-forwarded-")
_CLAIMED = frozenset({b"forwarded", b"x-real-ip"})
_FORM = b"application/x-www-form-urlencoded"
_BINARY_HEAD = b"inference-header-content-length"
(
    _DROPPED,
    _CONNECTION,
    _LENGTH,
    _TRANSFER,
    _JSON_LENGTH,
    _ENCODING,
    _MEDIA,
    _ACCEPT_ENCODING,
    _EXPECT,
    _CREDENTIAL,
    _REQUEST_ID,
) = range(11)
_SPECIAL = {
    **dict.fromkeys(_HOP_BY_HOP | _OURS | _CLAIMED, _DROPPED),
    b"connection": _CONNECTION,
    b"content-length": _LENGTH,
    b"transfer-encoding": _TRANSFER,
    _BINARY_HEAD: _JSON_LENGTH,
    b"content-encoding": _ENCODING,
    b"content-type": _MEDIA,
    b"accept-encoding": _ACCEPT_ENCODING,
    b"expect": _EXPECT,
    b"authorization": _CREDENTIAL,
    GIVEN: _REQUEST_ID,
}
_MEANT = _SPECIAL.keys() - _CLAIMED - {GIVEN}  # what means something to how a call is moved

T = TypeVar("T")


class HealthProbe(StrEnum):
    """The server's own health questions, which the gateway answers for the whole fleet."""

    LIVE = "live"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class KServeQuestion:
    """What a path asks for. `selector` is empty, a number or a label.

    Without a model, statistics are those of all models.
    """

    verb: Verb
    model: str = ""
    selector: str = ""


def parse(method: str, raw_path: bytes) -> KServeQuestion | HealthProbe:
    """What a request asks for; `NotHere`, `MethodNotAllowed` or `NotServed` when it is nothing."""
    if raw_path in (b"/v2", b"/v2/"):
        return _only(method, "GET", KServeQuestion(Verb.SERVER_METADATA))
    if raw_path == b"/v2/health/live":
        return _only(method, "GET", HealthProbe.LIVE)
    if raw_path == b"/v2/health/ready":
        return _only(method, "GET", HealthProbe.READY)
    if raw_path == b"/v2/models/stats":
        return _only(method, "GET", KServeQuestion(Verb.STATS))
    if _INDEX.match(raw_path):
        return _only(method, "POST", KServeQuestion(Verb.INDEX))
    if management.read_path(method, raw_path):
        raise unserved.refusal_of(raw_path)
    match = _MODEL.match(raw_path)
    if match is None:
        raise NotHere("Not Found")
    verb = Verb((match["verb"] or b"metadata").decode())
    question = KServeQuestion(verb, _text(match["model"]), _text(match["version"] or b""))
    return _only(method, "POST" if verb in PREDICTIONS else "GET", question)


def upstream_path(verb: Verb, model: str, version: int | None) -> str:
    """The path on Triton for a verb on a physical name, with the version when it is pinned."""
    if verb is Verb.SERVER_METADATA:
        return "/v2"
    path = f"/v2/models/{model}"
    if version is not None:
        path += f"/versions/{version}"
    return path if verb is Verb.METADATA else f"{path}/{verb.value}"


def end_to_end(headers: Headers) -> Headers:
    """The headers that go on: without those of one hop, those that Connection names, claims, and
    a key of ours.
    """
    named = {
        name.strip().lower()
        for key, value in headers
        if key == b"connection"
        for name in value.split(b",")
    } - {b"authorization"}
    return tuple(
        (key, value)
        for key, value in headers
        if key not in _HOP_BY_HOP
        and key not in _OURS
        and key not in named
        and not is_claim(key)
        and not (key == b"authorization" and is_ours(value))
    )


def without_upgrade(headers: list[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request that offers nothing; what else Connection says stays in force."""
    kept = []
    for name, value in headers:
        if name == b"connection":
            options = [word.strip() for word in value.split(b",")]
            value = b", ".join(word for word in options if word.lower() != b"upgrade")
        if name != b"upgrade":
            kept.append((name, value))
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class InferHead:
    """What the head of a predict request says, and the header lines that are passed on.

    `length` is None when chunks end the body; `json_length` is how many bytes of the inflated body
    are its JSON head, None when the whole body is; `inflates` says whether Triton will inflate it.
    `lines` holds Content-Length where there is one, but neither the empty line nor a key of ours.
    `credential` is the Authorization value, of several all of them, which are no key together;
    `request_id` is the caller's own, empty where it gave none that is usable.
    """

    lines: bytes
    length: int | None
    json_length: int | None
    inflates: bool
    expects_continue: bool
    credential: bytes = b""
    request_id: bytes = b""


def infer_head(
    headers: list[tuple[bytes, bytes]], *, plain_answer: bool = False, is_flat: bool = False
) -> InferHead:
    """Read a predict request's head in one pass; names are in lower case.

    A media type that is certainly wrong is not passed on: curl calls every `-d` body a form, and
    Triton 2.51 parses forms, one of 12 MB crashes it. With `plain_answer` Triton is not asked to
    compress. Of a flat request, as `generate` takes them, no part is binary, and Triton inflates
    none. `BadRequest` for an Inference-Header-Content-Length that cannot be, for a
    Transfer-Encoding that would have to be undone, and for an expectation that cannot be met.
    """
    lines: list[bytes] = []
    named: set[bytes] = set()
    length = json_length = None
    inflates = expects_continue = False
    credential = request_id = b""
    for name, value in headers:
        kind = _SPECIAL.get(name)
        if kind is None:
            if not name.startswith(_CLAIMS):
                lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _LENGTH:
            length = int(value)
            lines.append(b"Content-Length: %d\r\n" % length)
        elif kind == _MEDIA:
            if not value.lower().startswith(_FORM):
                lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _JSON_LENGTH:
            if not is_flat:
                json_length = _json_length(value, json_length)
            lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _ACCEPT_ENCODING:
            if not plain_answer:
                lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _ENCODING:
            coding = value.strip().lower()
            inflates = inflates or (not is_flat and coding in (b"gzip", b"deflate"))
            lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _CONNECTION:
            named.update(word.strip().lower() for word in value.split(b","))
        elif kind == _TRANSFER:
            check_coding(value)
        elif kind == _EXPECT:
            check_expectation(value)
            expects_continue = True
        elif kind == _CREDENTIAL:
            credential = credential + b", " + value if credential else value
            if not is_ours(value):
                lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _REQUEST_ID:
            request_id = request_id or usable(value)
            lines.append(b"%b: %b\r\n" % (name, value))
    named -= _MEANT | {b"close"}
    if named:
        rest = [pair for pair in headers if pair[0] not in named and pair[0] != b"connection"]
        return infer_head(rest, plain_answer=plain_answer, is_flat=is_flat)
    if length is not None and not inflates and (json_length or 0) > length:
        raise BadRequest(
            f"Inference-Header-Content-Length is {json_length}, but the body has {length} bytes"
        )
    return InferHead(
        b"".join(lines), length, json_length, inflates, expects_continue, credential, request_id
    )


def check_coding(value: bytes) -> None:
    """`BadRequest` for a Transfer-Encoding that a gateway would have to undo."""
    if value.strip().lower() != b"chunked":
        raise BadRequest("the body has a Transfer-Encoding other than chunked")


def not_http(reason: str) -> BadRequest:
    """The refusal of what llhttp cannot parse, for this reason."""
    if reason.startswith("Pause on PRI"):
        reason = "it starts an HTTP/2 connection, as gRPC clients do; use the gRPC port"
    return BadRequest("the request is not valid HTTP/1.1", why=reason)


def check_expectation(value: bytes) -> None:
    """`ExpectationFailed` for an Expect that is not 100-continue. Source: RFC 9110 10.1.1."""
    if value.strip().lower() != b"100-continue":
        raise ExpectationFailed(value.decode("latin-1"))


def means_nothing(name: bytes) -> bool:
    """Whether a predict request's header of this name, in lower case, is never looked into."""
    return name not in _MEANT


def is_claim(name: bytes) -> bool:
    """Whether a header of this name says what only a gateway may say; such ones stay behind."""
    return name in _CLAIMED or name.startswith(_CLAIMS)


def _json_length(value: bytes, earlier: int | None) -> int:
    digits = value.strip()  # llhttp leaves the space behind a value in place
    if earlier is not None or not digits.isdigit() or len(digits) > 19:
        raise BadRequest(
            "Inference-Header-Content-Length must be a number, and may occur only once"
        )
    return int(digits)


def _only(method: str, wanted: str, result: T) -> T:
    if method != wanted:
        raise MethodNotAllowed("Method Not Allowed")
    return result


def _text(segment: bytes) -> str:
    return segment.decode("latin-1")
