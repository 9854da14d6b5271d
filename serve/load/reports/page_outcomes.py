"""What each outcome of a call means, in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from serve.core.errors import ServegateError
from serve.load.record import (
    BROKEN,
    MALFORMED,
    NEVER_STARTED,
    NOT_CONNECTED,
    TIMED_OUT,
    WRONG,
)

_OWN = {
    NEVER_STARTED: "The run ended before a connection was free for the call.",
    TIMED_OUT: "No complete response arrived within the call's timeout.",
    NOT_CONNECTED: "The connection could not be established.",
    BROKEN: "The connection was closed before the response was complete.",
    WRONG: "The response was well-formed, but not the expected one.",
    MALFORMED: "The response could not be read.",
}
_STATUSES = {
    "http_400": "The server rejected the request as malformed.",
    "http_401": "The API key was missing or not valid.",
    "http_403": "The API key does not permit this call.",
    "http_404": "The model or version does not exist.",
    "http_408": "The server stopped waiting for the request.",
    "http_413": "The request body was too large.",
    "http_429": "Too many calls at once; the server refused the call without executing it.",
    "http_500": "Internal error of the server.",
    "http_502": "The gateway lost the connection to Triton during the call.",
    "http_503": "No server was available for the call.",
    "http_504": "The call's deadline passed.",
    "grpc_CANCELLED": "The call was cancelled.",
    "grpc_DEADLINE_EXCEEDED": "The call's deadline passed.",
    "grpc_INTERNAL": "Internal error of the server.",
    "grpc_INVALID_ARGUMENT": "The server rejected the request as malformed.",
    "grpc_NOT_FOUND": "The model or version does not exist.",
    "grpc_PERMISSION_DENIED": "The API key does not permit this call.",
    "grpc_RESOURCE_EXHAUSTED": "Too many calls at once, or the call was too large.",
    "grpc_UNAUTHENTICATED": "The API key was missing or not valid.",
    "grpc_UNAVAILABLE": "No server was available for the call, or the connection broke.",
    "grpc_UNIMPLEMENTED": "The server does not support this method.",
    "grpc_UNKNOWN": "The server failed without a reason.",
}


def meaning(outcome: str) -> str:
    """A sentence for an outcome, as HTML; empty where none is known.

    Where the gateway names a code, what `core/errors.py` says of it goes before the status.
    """
    status, _, code = outcome.partition(":")
    said = _codes().get(code) or _OWN.get(status) or _STATUSES.get(status, "")
    return escape(said)


def _codes() -> dict[str, str]:
    """The first sentence about each error of the gateway, by its code."""
    return {
        each.code: re.split(r"(?<=\.)\s", (each.__doc__ or "").strip())[0]
        for each in _below(ServegateError)
    }


def _below(kind: type[ServegateError]) -> Iterator[type[ServegateError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
