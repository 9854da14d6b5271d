"""Inflating: how large a compressed body becomes, found out piece by piece, before it is passed on.

Triton inflates a body when it is complete, without a limit of its own. So each piece is inflated
here first and the result is thrown away: a body that grows beyond the limit never arrives whole.
Beyond 64 MiB a body must not grow to more than 200 times what was sent either: such a one costs a
stranger nothing to send, and everybody else a second of this worker for every mebibyte of it.
"""

import zlib

FREE = 64 << 20  # bytes that a body may grow to, however little was sent
RATIO = 200
_OUT = 64 << 10  # bytes that are inflated at a time
_IN = 4 << 10  # bytes that are read at a time, so that leftovers are not copied again and again


def inflated_head(data: bytes, size: int = FREE) -> bytes:
    """The first bytes of a gzip or zlib body, at most `FREE`; fewer if it ends or is neither."""
    size = min(size, FREE)  # what a client claims
    found, inflater = bytearray(), zlib.decompressobj(wbits=47)
    for at in range(0, len(data), _IN):
        piece = data[at : at + _IN]
        try:
            while piece and len(found) < size:
                found += inflater.decompress(piece, size - len(found))
                piece = inflater.unconsumed_tail
                if inflater.eof:
                    piece, inflater = inflater.unused_data, zlib.decompressobj(wbits=47)
        except zlib.error:
            break
        if len(found) >= size:
            break
    return bytes(found)


class Inflation:
    """Follows one gzip or zlib body. Bytes that are neither are left to Triton's judgement."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent = 0
        self._size = 0
        self._inflater = zlib.decompressobj(wbits=47)  # either format, found out by the first bytes

    @property
    def limit(self) -> int:
        """Bytes that the body may grow to, for as much of it as has been sent."""
        return min(self._limit, max(FREE, self._sent * RATIO))

    def exceeds(self, data: bytes) -> bool:
        """Whether the body with this next piece grows beyond what it may."""
        return any(self._grows(data[at : at + _IN]) for at in range(0, len(data), _IN))

    def _grows(self, data: bytes) -> bool:
        self._sent += len(data)
        limit = self.limit
        try:
            while data:
                self._size += len(self._inflater.decompress(data, _OUT))
                if self._size > limit:
                    return True
                data = self._inflater.unconsumed_tail
                if self._inflater.eof:  # another gzip member may follow
                    data = self._inflater.unused_data
                    self._inflater = zlib.decompressobj(wbits=47)
        except zlib.error:
            self._inflater = zlib.decompressobj(wbits=47)
        return False
