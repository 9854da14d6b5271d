"""What each outcome of a call means, in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from serve.core.errors import ServegateError
from serve.load.recording import (
    BROKEN,
    MALFORMED,
    NEVER_STARTED,
    NOT_CONNECTED,
    TIMED_OUT,
    WRONG,
)

_OWN = {
    NEVER_STARTED: "The run was over before the generator had a connection free for the call.",
    TIMED_OUT: "No whole answer came within the call's timeout.",
    NOT_CONNECTED: "No connection could be made.",
    BROKEN: "The connection was closed before the answer was whole.",
    WRONG: "A well-formed answer, and not the one that was expected.",
    MALFORMED: "An answer that could not be read.",
}
_STATUSES = {
    "http_400": "The server found the request malformed.",
    "http_401": "The key was missing or not valid.",
    "http_403": "The key may not do this.",
    "http_404": "No such model or version.",
    "http_408": "The server gave up reading the request.",
    "http_413": "The request's body was too large.",
    "http_429": "Too many calls at once: refused without being executed.",
    "http_500": "The server failed inside.",
    "http_502": "The gateway lost the server in the middle of the call.",
    "http_503": "Nobody could serve the call at that moment.",
    "http_504": "The call's deadline passed on the way.",
    "grpc_CANCELLED": "The call was cancelled.",
    "grpc_DEADLINE_EXCEEDED": "The call's deadline passed on the way.",
    "grpc_INTERNAL": "The server failed inside.",
    "grpc_INVALID_ARGUMENT": "The server found the request malformed.",
    "grpc_NOT_FOUND": "No such model or version.",
    "grpc_PERMISSION_DENIED": "The key may not do this.",
    "grpc_RESOURCE_EXHAUSTED": "Too many calls at once, or too large: refused.",
    "grpc_UNAUTHENTICATED": "The key was missing or not valid.",
    "grpc_UNAVAILABLE": "Nobody could serve the call at that moment, or the connection broke.",
    "grpc_UNIMPLEMENTED": "The server does not know this method.",
    "grpc_UNKNOWN": "The server failed without saying how.",
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
