"""Inflation: a compressed message of gRPC is inflated whole, within the limit, or refused."""

import zlib

from serve.core.errors import BadRequest, InflatedTooLarge
from serve.wire.grpc_messages import inflate

LIMIT = 100_000


def play(data: bytes) -> None:
    for encoding, bits in ((b"gzip", 31), (b"deflate", 15)):
        try:
            read = inflate(data, encoding, LIMIT)
        except (BadRequest, InflatedTooLarge):
            continue
        assert len(read) <= LIMIT
        assert zlib.decompress(data, wbits=bits) == read
