"""HTTP/2 frames: nine bytes of head, a payload, and the numbers of RFC 9113 that both sides share.

    +-----------------------------------------------+
    |                 Length (24)                   |
    +---------------+---------------+---------------+
    |   Type (8)    |   Flags (8)   |
    +-+-------------+---------------+-------------------------------+
    |R|                 Stream Identifier (31)                      |
    +=+=============================================================+
    |                   Frame Payload (0...)                      ...
    +---------------------------------------------------------------+

Length and type are read as one 32-bit word. Nothing here keeps state; `http2_link.py` does.
"""

from collections.abc import Callable, Iterator
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">IBI")  # length << 8 | type, flags, stream
HEAD_SIZE = 9
read_head: Callable[[bytes, int], tuple[int, int, int]] = HEAD.unpack_from

# Types of frames (RFC 9113 6).
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

# Flags.
END_STREAM, ACK = 0x1, 0x1
END_HEADERS, PADDED, PRIORITISED = 0x4, 0x8, 0x20

# Settings (RFC 9113 6.5.2).
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6

# Error codes (RFC 9113 7).
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 5, 6, 7, 8
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11

DEFAULT_WINDOW = 65_535
SMALLEST_FRAME, LARGEST_FRAME = 1 << 14, (1 << 24) - 1
LARGEST_WINDOW = LAST_STREAM = (1 << 31) - 1

_SETTING = Struct(">HI")
_NUMBER = Struct(">I")


class ConnectionFault(Exception):
    """The peer breaks a rule that costs it the whole connection; `code` goes out in GOAWAY."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Malformed(Exception):
    """A head that is no request or answer: costs its stream alone (RFC 9113 8.1.1)."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One whole frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """The settings of a payload, checked as RFC 9113 6.5.2 says; unknown ones come along."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(FRAME_SIZE_ERROR, "SETTINGS of a broken length")
    for number, value in _SETTING.iter_unpack(payload):
        if number == ENABLE_PUSH and value > 1:
            raise ConnectionFault(PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if number == INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE beyond 2^31 - 1")
        if number == MAX_FRAME_SIZE and not SMALLEST_FRAME <= value <= LARGEST_FRAME:
            raise ConnectionFault(PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
        yield number, value


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(increment))


def rst_stream(stream: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def goaway(last: int, code: int, why: str = "") -> bytes:
    """A GOAWAY frame: streams above `last` were not and will not be looked at."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + why.encode())


def head_frames(stream: int, block: bytes, end: int, largest: int) -> bytes:
    """A header block as HEADERS, and CONTINUATION where it exceeds the peer's `largest` frame.

    `end` is END_STREAM or 0.
    """
    if len(block) <= largest:
        return HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS | end, stream) + block
    frames = []
    for at in range(0, len(block), largest):
        piece = block[at : at + largest]
        flags = END_HEADERS if at + largest >= len(block) else 0
        if at:
            frames.append(frame(CONTINUATION, flags, stream, piece))
        else:
            frames.append(frame(HEADERS, flags | end, stream, piece))
    return b"".join(frames)


def number(payload: bytes | memoryview, position: int = 0) -> int:
    """A 31-bit number of a payload; the reserved bit above it is ignored."""
    value: int = _NUMBER.unpack_from(payload, position)[0] & LARGEST_WINDOW
    return value


def code_of(payload: bytes | memoryview, position: int = 0) -> int:
    """An error code: all 32 bits."""
    value: int = _NUMBER.unpack_from(payload, position)[0]
    return value


def without_padding(payload: bytes, flags: int) -> bytes:
    """The header block fragment of a HEADERS frame: without padding and priority."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a padded frame without its padding's length")
        start, end = 1, end - payload[0]
    if flags & PRIORITISED:
        start += 5
    if start > end:
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than payload")
    return payload[start:end]
