"""KServe v2 over HTTP: request paths and heads, read as Triton reads them.

Triton never percent-decodes: a path is matched as its raw bytes, query strings are ignored, and a
trailing slash is another path. A version segment may also be a label here, which no path of Triton
is: Triton's versions are numbers.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from serve.core.calls import Headers, Verb
from serve.core.errors import BadRequest, MethodNotAllowed, NotHere, NotServed

_MODEL = re.compile(
    rb"^/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
    rb"(?:/(?P<verb>infer|ready|config|stats))?\Z"
)
_MANAGEMENT = re.compile(
    rb"^/v2/(repository(/|$)|systemsharedmemory(/|$)|cudasharedmemory(/|$)|logging$|trace/setting$"
    rb"|models/[^/]+/trace/setting$)"
)
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
) = range(9)
_SPECIAL = {
    **dict.fromkeys(_HOP_BY_HOP | _OURS, _DROPPED),
    b"connection": _CONNECTION,
    b"content-length": _LENGTH,
    b"transfer-encoding": _TRANSFER,
    _BINARY_HEAD: _JSON_LENGTH,
    b"content-encoding": _ENCODING,
    b"content-type": _MEDIA,
    b"accept-encoding": _ACCEPT_ENCODING,
    b"expect": _EXPECT,
}

T = TypeVar("T")


class Probe(StrEnum):
    """The server's own health questions, which the gateway answers for the whole fleet."""

    LIVE = "live"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Question:
    """What a path asks for. `selector` is empty, a number or a label."""

    verb: Verb
    model: str = ""
    selector: str = ""


def parse(method: str, raw_path: bytes) -> Question | Probe:
    """What a request asks for; `NotHere`, `MethodNotAllowed` or `NotServed` when it is nothing."""
    if raw_path in (b"/v2", b"/v2/"):
        return _only(method, "GET", Question(Verb.SERVER_METADATA))
    if raw_path == b"/v2/health/live":
        return _only(method, "GET", Probe.LIVE)
    if raw_path == b"/v2/health/ready":
        return _only(method, "GET", Probe.READY)
    if _MANAGEMENT.match(raw_path):
        raise NotServed(
            "this part of Triton's protocol is not served by the gateway",
            why="it would change or show one replica out of many",
            try_this="the admin API, or servegate model ls",
        )
    match = _MODEL.match(raw_path)
    if match is None or raw_path == b"/v2/models/stats":
        raise NotHere("Not Found")
    verb = Verb((match["verb"] or b"metadata").decode())
    question = Question(verb, _text(match["model"]), _text(match["version"] or b""))
    return _only(method, "POST" if verb is Verb.INFER else "GET", question)


def upstream_path(verb: Verb, model: str, version: int | None) -> str:
    """The path on Triton for a verb on a physical name, with the version when it is pinned."""
    if verb is Verb.SERVER_METADATA:
        return "/v2"
    path = f"/v2/models/{model}"
    if version is not None:
        path += f"/versions/{version}"
    return path if verb is Verb.METADATA else f"{path}/{verb.value}"


def end_to_end(headers: Headers) -> Headers:
    """The headers without those that belong to one hop or that Connection names."""
    named = {
        name.strip().lower()
        for key, value in headers
        if key == b"connection"
        for name in value.split(b",")
    }
    return tuple(
        (key, value)
        for key, value in headers
        if key not in _HOP_BY_HOP and key not in _OURS and key not in named
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
    `lines` holds Content-Length where there is one, but not the empty line.
    """

    lines: bytes
    length: int | None
    json_length: int | None
    inflates: bool
    expects_continue: bool


def infer_head(headers: list[tuple[bytes, bytes]], *, plain_answer: bool = False) -> InferHead:
    """Read a predict request's head in one pass; names are in lower case.

    A media type that is certainly wrong is not passed on: curl calls every `-d` body a form, and
    Triton 2.51 parses forms, one of 12 MB crashes it. With `plain_answer` Triton is not asked to
    compress. `BadRequest` for an Inference-Header-Content-Length that cannot be, and for a
    Transfer-Encoding that would have to be undone.
    """
    lines: list[bytes] = []
    named: set[bytes] = set()
    length = json_length = None
    inflates = expects_continue = False
    for name, value in headers:
        kind = _SPECIAL.get(name)
        if kind is None:
            lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _LENGTH:
            length = int(value)
            lines.append(b"Content-Length: %d\r\n" % length)
        elif kind == _MEDIA:
            if not value.lower().startswith(_FORM):
                lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _JSON_LENGTH:
            json_length = _json_length(value, json_length)
            lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _ACCEPT_ENCODING:
            if not plain_answer:
                lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _ENCODING:
            inflates = inflates or value.strip().lower() in (b"gzip", b"deflate")
            lines.append(b"%b: %b\r\n" % (name, value))
        elif kind == _CONNECTION:
            named.update(word.strip().lower() for word in value.split(b","))
        elif kind == _TRANSFER:
            check_coding(value)
        elif kind == _EXPECT:
            expects_continue = value.strip().lower() == b"100-continue"
    named -= _SPECIAL.keys() | {b"close"}
    if named:
        rest = [pair for pair in headers if pair[0] not in named and pair[0] != b"connection"]
        return infer_head(rest, plain_answer=plain_answer)
    if length is not None and not inflates and (json_length or 0) > length:
        raise BadRequest(
            f"Inference-Header-Content-Length is {json_length}, beyond the body of {length} bytes"
        )
    return InferHead(b"".join(lines), length, json_length, inflates, expects_continue)


def check_coding(value: bytes) -> None:
    """`BadRequest` for a Transfer-Encoding that a gateway would have to undo."""
    if value.strip().lower() != b"chunked":
        raise BadRequest("the body has a Transfer-Encoding other than chunked")


def is_only_passed_on(name: bytes) -> bool:
    """Whether a predict request's header of this name, in lower case, means nothing here."""
    return name not in _SPECIAL


def sequence_of(json_head: bytes) -> str:
    """The correlation id in the JSON head of a predict request; empty when there is none.

    A number and a string with the same digits are two ids, so the type is part of the result. JSON
    that cannot be read is left to Triton, whose answer says what is wrong with it.
    """
    try:
        head: Any = json.loads(json_head)
        identity = head["parameters"]["sequence_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return sequence_key(identity)


def sequence_key(identity: object) -> str:
    """One word for a correlation id: numbers and strings differ, and 0 and "" are none."""
    if not identity or isinstance(identity, bool) or not isinstance(identity, int | str):
        return ""
    return f"{'n' if isinstance(identity, int) else 's'}{identity}"


def _json_length(value: bytes, earlier: int | None) -> int:
    digits = value.strip()  # llhttp leaves the space behind a value in place
    if earlier is not None or not digits.isdigit() or len(digits) > 19:
        raise BadRequest("Inference-Header-Content-Length must be given once, as a number")
    return int(digits)


def _only(method: str, wanted: str, result: T) -> T:
    if method != wanted:
        raise MethodNotAllowed("Method Not Allowed")
    return result


def _text(segment: bytes) -> str:
    return segment.decode("latin-1")
