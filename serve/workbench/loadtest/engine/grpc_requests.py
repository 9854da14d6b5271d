"""Heads of gRPC requests: all the calls of a lane have the same, which is encoded once.

Its fields are literals that go into no table, so that the block is right for every connection and
for every stream of it.
"""

from __future__ import annotations

import re

from serve.core.errors import Invalid
from serve.wire.grpc_heads import CONTENT_TYPE, POST_OVER_HTTP, TE, timeout_field
from serve.wire.hpack_blocks import literal
from serve.workbench.loadtest.plan import Lane

Metadata = tuple[tuple[str, str], ...]
_POST_OVER_HTTPS = b"\x83\x87"  # the constants `:method: POST` and `:scheme: https`
_NAME = re.compile(r"(?!grpc-)[0-9A-Za-z_.-]+(?<!-bin)")


def head_block(lane: Lane, timeout: float) -> bytes:
    """The header block of each call; `timeout` in seconds. `Invalid` for what it cannot hold."""
    given = (literal(name.encode(), value.encode()) for name, value in metadata_of(lane))
    return b"".join(
        (
            _POST_OVER_HTTPS if lane.tls else POST_OVER_HTTP,
            literal(b":path", lane.path.encode()),
            literal(b":authority", lane.address.encode()),
            TE,
            CONTENT_TYPE,
            timeout_field(timeout),
            *given,
        )
    )


def metadata_of(lane: Lane) -> Metadata:
    """The lane's headers as gRPC wants them; `Invalid` for what gRPC does not send."""
    for name, value in lane.headers:
        if not _NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise Invalid(f"the header '{name}' cannot be sent as gRPC metadata")
    return tuple((name.lower(), value) for name, value in lane.headers)
