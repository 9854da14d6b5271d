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
    rb"(?:/(?P<verb>infer|ready|config|stats))?$"
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


def for_infer(headers: Headers) -> Headers:
    """End-to-end headers of a predict call, without a media type that is certainly wrong.

    curl calls every `-d` body a form, and Triton 2.51 parses forms: one of 12 MB crashes it.
    """
    return tuple(
        (key, value)
        for key, value in end_to_end(headers)
        if key != b"content-type" or not value.lower().startswith(_FORM)
    )


def head_length(headers: Headers, body: bytes) -> int | None:
    """How many bytes of an uncompressed body are its JSON head; None when the whole body is.

    A length beyond the body, or one that is no number, is a fault of framing: `BadRequest`.
    """
    values = [value for key, value in headers if key == _BINARY_HEAD]
    if not values:
        return None
    text = values[0].strip()
    if len(values) > 1 or not text.isdigit() or len(text) > 19:
        raise BadRequest("Inference-Header-Content-Length must be given once, as a number")
    if any(key == b"content-encoding" for key, _ in headers):
        return int(text)
    if int(text) > len(body):
        raise BadRequest(
            f"Inference-Header-Content-Length is {int(text)}, beyond the body of {len(body)} bytes"
        )
    return int(text)


def sequence_of(headers: Headers, body: bytes) -> str:
    """The correlation id of a call to a sequence model; empty when there is none to be read.

    A number and a string with the same digits are two ids, so the type is part of the result. JSON
    that cannot be read is left to Triton, whose answer says what is wrong with it.
    """
    if any(key == b"content-encoding" for key, _ in headers):
        return ""
    length = head_length(headers, body)
    try:
        head: Any = json.loads(body if length is None else body[:length])
        identity = head["parameters"]["sequence_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return sequence_key(identity)


def sequence_key(identity: object) -> str:
    """One word for a correlation id: numbers and strings differ, and 0 and "" are none."""
    if not identity or isinstance(identity, bool) or not isinstance(identity, int | str):
        return ""
    return f"{'n' if isinstance(identity, int) else 's'}{identity}"


def _only(method: str, wanted: str, result: T) -> T:
    if method != wanted:
        raise MethodNotAllowed("Method Not Allowed")
    return result


def _text(segment: bytes) -> str:
    return segment.decode("latin-1")
