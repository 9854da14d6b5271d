"""Cutting: bytes come in pieces, and where they are cut must not matter.

The cuts follow from the bytes themselves, so that a file of the corpus is nothing but what goes
over the wire, and fails again whenever it is played again.
"""

import random
import zlib
from collections.abc import Iterator

_SINGLE = 1024  # bytes up to which an input is also played byte by byte


def pieces(data: bytes, largest: int = 64) -> list[bytes]:
    """The bytes cut at places that follow from them."""
    chance = random.Random(zlib.crc32(data))
    cut, position = [], 0
    while position < len(data):
        size = chance.choice((1, 2, 3, 9, 17, largest, 4 * largest, 1 << 20))
        cut.append(data[position : position + size])
        position += size
    return cut


def ways(data: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Three ways to cut: not at all, everywhere (when it is short), and at random."""
    yield "whole", [data] if data else []
    yield "cut", pieces(data)
    if len(data) <= _SINGLE:
        yield "bytes", [data[at : at + 1] for at in range(len(data))]


def choice(data: bytes, count: int) -> int:
    """A number below `count` that follows from the bytes."""
    return zlib.adler32(data) % count
