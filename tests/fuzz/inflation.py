"""Inflation: a compressed body that grows beyond the limit is found out, however it is cut.

The judge inflates as Triton does, member after member, and stops at what is neither gzip nor zlib.
"""

import zlib

from fuzz.cutting import ways

from serve.core.errors import BadRequest, InflatedTooLarge
from serve.wire.decompression import Inflation
from serve.wire.grpc_messages import inflate

LIMIT = 100_000
_UNCOUNTED = (64 << 10) + 300  # bytes before an error in the same piece, and what zlib keeps back


def play(data: bytes) -> None:
    """See the module."""
    size = _inflated(data)
    for way, pieces in ways(data):
        inflation = Inflation(LIMIT)
        exceeds = max([inflation.exceeds(piece) for piece in pieces], default=False)
        if size > LIMIT + _UNCOUNTED:
            assert exceeds, f"{size} bytes go through: {way}"
        if exceeds and way == "whole":
            assert size > LIMIT, f"{size} bytes are refused"
    for encoding, bits in ((b"gzip", 31), (b"deflate", 15)):
        _message(data, encoding, bits)


def _inflated(data: bytes) -> int:
    """Bytes after inflating, as far as the body is good."""
    size = 0
    while data:
        inflater = zlib.decompressobj(wbits=47)
        try:
            while data and not inflater.eof:
                size += len(inflater.decompress(data, 4096))
                data = inflater.unconsumed_tail
            data = inflater.unused_data
        except zlib.error:
            return size
    return size


def _message(data: bytes, encoding: bytes, bits: int) -> None:
    """A compressed gRPC message is inflated whole, or refused."""
    try:
        read = inflate(data, encoding, LIMIT)
    except (BadRequest, InflatedTooLarge):
        return
    assert len(read) <= LIMIT
    assert zlib.decompress(data, wbits=bits) == read
