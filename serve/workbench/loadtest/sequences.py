"""Ids of sequences in encoded bodies: a marker of constant length that an id replaces.

Ids are whole numbers of 16 digits, so that each has the marker's length as JSON, and takes 8 bytes
as a varint of protobuf; all are below 2^53, which every reader of JSON keeps exact. The marker is
the id with the parameter's name around it: no tensor holds such bytes by chance, and as parameters
stand before the tensors, it is found at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from serve.core.errors import Invalid
from serve.wire import protobuf
from serve.workbench.loadtest.plan import LaneProtocol

MARKER_ID = 8_999_999_999_999_999
_FIRST = 1_000_000_000_000_000
IDS = MARKER_ID - _FIRST
"""How many ids there are: the numbers of sequences go from 0 to here, and then again."""

_NAME = "sequence_id"
_JSON = f'"{_NAME}":'.encode()
_INT64 = 2  # of InferParameter
_GRPC = protobuf.field(1, _NAME.encode()) + bytes((0x12, 9, _INT64 << 3))
_BEFORE: Mapping[LaneProtocol, bytes] = MappingProxyType(
    {
        LaneProtocol.HTTP_JSON: _JSON,
        LaneProtocol.HTTP_BINARY: _JSON,
        LaneProtocol.GRPC: _GRPC,
        LaneProtocol.GRPC_STREAM: _GRPC,
    }
)


def sequence_marker(protocol: LaneProtocol) -> bytes:
    """What stands in a body where the id belongs; `Invalid` for TF-Serving, which has no ids."""
    if protocol not in _BEFORE:
        raise Invalid(
            f"{protocol} does not support sequences",
            why="TensorFlow Serving's API has no sequence id",
            try_this="use http-json, http-binary, grpc or grpc-stream",
        )
    return _written(protocol, MARKER_ID)


def sequence_body(body: bytes, marker: bytes, protocol: LaneProtocol, number: int) -> bytes:
    """The body, at the same length, for the sequence of this number, see `IDS`.

    Numbers must differ between workers, and from those of sequences that the server still holds.
    """
    return body.replace(marker, _written(protocol, _FIRST + number % IDS), 1)


def _written(protocol: LaneProtocol, identity: int) -> bytes:
    before = _BEFORE[protocol]
    if before is _JSON:
        return b"%b%d" % (before, identity)
    return before + protobuf.number(_INT64, identity)[1:]
