"""Messages in a gRPC stream: five bytes of prefix, then as many bytes as it says.

    compressed (1 byte, 0 or 1) · length (4 bytes) · message

`MessageCutter` cuts a stream of pieces at the borders of messages without joining a message.
"""

import zlib
from collections.abc import Iterator
from struct import Struct

from serve.core.errors import BadRequest, InflatedTooLarge, NotServed, ServegateError

PREFIX = Struct(">BI")
PREFIX_SIZE = 5
EMPTY_MESSAGE = bytes(PREFIX_SIZE)

Piece = bytes | memoryview


def message(body: bytes) -> bytes:
    """A whole message, not compressed."""
    return PREFIX.pack(0, len(body)) + body


def read_prefix(start: bytes | memoryview) -> tuple[int, int]:
    """Whether the message is compressed, and its length."""
    flag, length = PREFIX.unpack_from(start)
    if flag > 1:
        raise BadRequest(f"the flag {flag} of a gRPC message is not valid")
    return flag, length


def inflate(body: bytes, encoding: bytes, limit: int) -> bytes:
    """A compressed message as it was; `InflatedTooLarge` as soon as it grows beyond the limit."""
    if encoding not in (b"gzip", b"deflate"):
        raise BadRequest("a message is compressed, but the call has no grpc-encoding")
    inflater = zlib.decompressobj(wbits=31 if encoding == b"gzip" else 15)
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"a message is not valid {encoding.decode()}: {error}") from error
    if len(inflated) > limit:
        raise InflatedTooLarge(limit)
    if not inflater.eof or inflater.unused_data:
        raise BadRequest(f"a {encoding.decode()} message is not complete")
    return inflated


def second() -> ServegateError:
    """A unary call has more than one message."""
    return NotServed("a unary call has exactly one message", why="a second one arrived")


def cut_off(size: int) -> ServegateError:
    """A unary call ends before its message does, after so many bytes."""
    if not size:
        return NotServed("a unary call has exactly one message", why="none arrived")
    return BadRequest(f"the stream ended inside a message, after {size} bytes")


class MessageCutter:
    """Cuts pieces at the borders of messages."""

    __slots__ = ("_left", "_prefix")

    def __init__(self) -> None:
        self._prefix = b""
        self._left = 0

    @property
    def is_between(self) -> bool:
        """Whether no message is under way."""
        return not self._left and not self._prefix

    def cut(self, piece: Piece) -> Iterator[tuple[bytes, Piece, bool]]:
        """Parts as (prefix, bytes, is_last): the first part of each message has its prefix."""
        position, size = 0, len(piece)
        while position < size:
            prefix = b""
            if not self._left:
                missing = PREFIX_SIZE - len(self._prefix)
                self._prefix += bytes(piece[position : position + missing])
                position += missing
                if len(self._prefix) < PREFIX_SIZE:
                    return
                prefix, self._prefix = self._prefix, b""
                self._left = read_prefix(prefix)[1]
            part = piece[position : position + self._left]
            position += len(part)
            self._left -= len(part)
            yield prefix, part, not self._left
