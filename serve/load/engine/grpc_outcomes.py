"""What the end of a stream of grpcio means: the outcome of the call on it.

| grpcio's code      | its details           | `servegate-error` | outcome              |
|--------------------|-----------------------|-------------------|----------------------|
| `DEADLINE_…`       |                       | none              | `timeout`            |
| any                | no connection         | none              | `connect`            |
| any                | the connection broke  | none              | `reset`              |
| any                | the server's own      | none              | `grpc_<CODE>`        |
| any                |                       | a code            | `grpc_<CODE>:<code>` |

grpcio makes statuses up for what happens to a connection, and only its words tell them from a
server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import grpc

from serve.load.record import BROKEN, NOT_CONNECTED, TIMED_OUT

_ERROR_CODE = "servegate-error"
_UNREACHED = re.compile(
    r"failed to connect|errors? resolving|resolution fail|name resolution", re.IGNORECASE
)
_LOST = re.compile(
    r"^stream removed|socket closed|connection reset|broken pipe|recvmsg|sendmsg|goaway"
    r"|rst_stream|transport closed|keepalive",
    re.IGNORECASE,
)


def outcome_of(call: Any) -> str:
    """The outcome of a call that has failed: what grpcio raised, or a stream that is over."""
    code: grpc.StatusCode = call.code()
    told = _value(call.trailing_metadata(), _ERROR_CODE)
    if told:
        return f"grpc_{code.name}:{told}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TIMED_OUT
    details = call.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and _UNREACHED.search(details):
        return NOT_CONNECTED
    return BROKEN if _LOST.search(details) else f"grpc_{code.name}"


def _value(metadata: Iterable[tuple[str, Any]] | None, key: str) -> str:
    for name, value in metadata or ():
        if name == key:
            return str(value)
    return ""
