"""Frames out of bytes (RFC 9113 4): DATA goes on as it comes, header blocks are put together.

Bytes come cut anywhere. A frame is handled when it is whole, but for DATA: its payload goes on as
it comes, so that nothing large is ever put together. Padding counts for windows and is dropped.
"""

from abc import abstractmethod

from serve.wire import http2
from serve.wire.http2 import (
    DATA,
    END_STREAM,
    HEAD_SIZE,
    HEADERS,
    LAST_STREAM,
    ConnectionFault,
    read_head,
)
from serve.wire.http2_flow import CONNECTION_WINDOW, FlowBoard, Outflow
from serve.wire.http2_stream import Stream

_SMALL = 4096  # bytes; a payload up to this size is copied, a larger one is a view
_NOT_DATA = 1 << 14  # the largest frame that we take and that holds neither DATA nor headers
_WHOLE_HEAD = http2.END_HEADERS | END_STREAM


class Http2Reader(Outflow):
    """The receiving half: `receive` takes bytes, `on_head`, `on_frame` and the streams get frames.

    `frame` is the largest payload that we advertise, `head` the largest header block.
    """

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_id",
        "_continuations",
        "_final",
        "_into",
        "_left",
        "_padding",
        "_rest",
        "consumed",
        "credit",
        "frame_limit",
        "head_limit",
        "last_id",
        "preface",
    )

    def __init__(self, board: FlowBoard, *, frame: int, head: int, continuations: int) -> None:
        super().__init__(board)
        self.last_id = 0  # the highest stream that was opened
        self.credit = CONNECTION_WINDOW
        self.frame_limit = frame
        self.head_limit = head
        self._continuations = continuations
        self.preface = b""  # what has to come before the first frame
        self.consumed = 0  # bytes of frames that have been handled
        self._rest = b""  # of a frame that is not whole
        self._left = 0  # bytes of the present payload that are still to come
        self._padding = 0  # how many of them, at its end, go nowhere
        self._into: Stream | None = None  # where the others go
        self._final = 0
        self._block: list[bytes] | None = None  # a header block that is not whole
        self._block_id = self._block_flags = 0

    @property
    def is_inside_head(self) -> bool:
        """Whether the preface, a frame's head, or a header block is not whole yet."""
        return bool(self.preface or self._rest) or self._block is not None

    # --- what an owner overrides ------------------------------------------------------------------

    @abstractmethod
    def on_head(self, number: int, block: bytes, end: int, data: bytes, after: int) -> int:
        """A whole header block on a stream, known or not; where reading goes on.

        Usually that is `after`. The frames that lie there in `data` may be taken along when they
        are whole: most calls, and most answers, come in one read.
        """

    @abstractmethod
    def on_frame(self, kind: int, payload: bytes, flags: int, number: int) -> None:
        """Any other frame, whole."""

    def on_idle_talk(self) -> None:
        """A frame that moves nothing."""

    def on_stream_fault(self) -> None:
        """A stream was reset by the peer, or by us for its fault."""

    # --- frames -----------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """The bytes of one read; `ConnectionFault` when the connection cannot go on."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        if self.preface:
            data = self._read_preface(data)
        size, streams, largest = len(data), self.streams, self.frame_limit
        position = self._resume(data, 0, size) if self._left else 0
        while size - position >= HEAD_SIZE:
            word, flags, number = read_head(data, position)
            length = word >> 8
            start = position + HEAD_SIZE
            end = start + length
            # Usual frames first. No single read can exceed the connection's credit.
            if end <= size and length <= largest and self._block is None:
                kind = word & 0xFF
                if kind == DATA and number in streams:
                    stream = streams[number]
                    if (
                        length <= stream.credit
                        and flags | END_STREAM == END_STREAM
                        and not stream.is_remote_closed
                    ):
                        self._deliver(stream, data, start, end, flags)
                        position = end
                        continue
                elif (
                    kind == HEADERS
                    and flags | END_STREAM == _WHOLE_HEAD
                    and length <= self.head_limit
                    and 0 < number <= LAST_STREAM
                ):
                    block = data[start:end]
                    position = self.on_head(number, block, flags & END_STREAM, data, end)
                    continue
            after = self._take(data, start, size, word, flags, number & LAST_STREAM)
            if after < 0:
                break
            position = after
        self._end_read(data, position)

    def _end_read(self, data: bytes, position: int) -> None:
        """Keep what is not whole, and renew the credit of the connection."""
        self.consumed += position
        if position < len(data):
            self._rest = data[position:]
        if self.credit < CONNECTION_WINDOW >> 1:
            self.send(http2.window_update(0, CONNECTION_WINDOW - self.credit))
            self.credit = CONNECTION_WINDOW

    def _read_preface(self, data: bytes) -> bytes:
        """What lies behind the preface."""
        start = data[: len(self.preface)]
        if not self.preface.startswith(start):
            raise ConnectionFault(http2.PROTOCOL_ERROR, "not the preface of HTTP/2")
        self.preface = self.preface[len(start) :]
        return data[len(start) :]

    def fail(self, stream: Stream, code: int) -> None:
        """The peer has broken a rule of this stream."""
        self.reset(stream, code)
        stream.on_reset(code)
        self.on_stream_fault()

    def _deliver(self, stream: Stream, data: bytes, start: int, stop: int, end: int) -> None:
        """A piece of DATA for a stream that is open and has credit for it."""
        size = stop - start
        stream.credit -= size
        self.credit -= size
        if end:
            stream.is_remote_closed = True
        elif not size:
            self.on_idle_talk()
        piece = data[start:stop] if size <= _SMALL else memoryview(data)[start:stop]
        stream.on_data(piece, end)
        if end and stream.is_local_closed:
            self.forget(stream)

    def _take(self, data: bytes, start: int, size: int, word: int, flags: int, number: int) -> int:
        """Any other frame: where the next one starts, or -1 while this one is not whole."""
        kind, length = word & 0xFF, word >> 8
        if length > self.frame_limit:
            raise ConnectionFault(http2.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
        if self._block is not None and (kind != http2.CONTINUATION or number != self._block_id):
            raise ConnectionFault(http2.PROTOCOL_ERROR, "another frame inside a header block")
        if kind == DATA:
            return self._data(data, start, size, length, flags, number)
        if kind in (HEADERS, http2.CONTINUATION):
            if length > self.head_limit:
                raise ConnectionFault(
                    http2.ENHANCE_YOUR_CALM, f"a header block beyond {self.head_limit} bytes"
                )
        elif kind > http2.CONTINUATION:  # RFC 9113 4.1: unknown types are skipped
            self.on_idle_talk()
            return self._discard(data, start, size, length)
        elif length > _NOT_DATA:
            raise ConnectionFault(http2.ENHANCE_YOUR_CALM, "a control frame that is too large")
        if start + length > size:
            return -1
        payload = data[start : start + length]
        if kind == HEADERS:
            self._headers(payload, flags, number)
        elif kind == http2.CONTINUATION:
            self._continuation(payload, flags, number)
        else:
            self.on_frame(kind, payload, flags, number)
        return start + length

    # --- DATA -------------------------------------------------------------------------------------

    def _data(
        self, data: bytes, start: int, size: int, length: int, flags: int, number: int
    ) -> int:
        """DATA that is cut, padded, or wrong; what has come of its payload goes on at once."""
        self.check_not_idle(number)
        if flags & http2.PADDED:
            if not length:
                raise ConnectionFault(
                    http2.FRAME_SIZE_ERROR, "a padded frame without its padding's length"
                )
            if start == size:
                return -1
            if data[start] >= length:
                raise ConnectionFault(http2.PROTOCOL_ERROR, "more padding than payload")
        if length > self.credit:
            raise ConnectionFault(
                http2.FLOW_CONTROL_ERROR, "more DATA than the connection's window"
            )
        stream = self._open_for_data(number, length)
        padding = 0
        if flags & http2.PADDED:
            padding = data[start]
            start += 1
            length -= 1
            self.credit -= 1 + padding
            if stream is not None:
                stream.credit -= 1 + padding
                stream.consume(1 + padding)
        self._left, self._padding = length, padding
        self._into, self._final = stream, flags & END_STREAM
        return self._resume(data, start, size)

    def _open_for_data(self, number: int, length: int) -> Stream | None:
        """The stream that may take this much DATA; None when the bytes go nowhere."""
        stream = self.streams.get(number)
        if stream is None:
            return None
        if stream.is_remote_closed:
            self.fail(stream, http2.STREAM_CLOSED)
            return None
        if length > stream.credit:
            self.fail(stream, http2.FLOW_CONTROL_ERROR)
            return None
        return stream

    def _resume(self, data: bytes, start: int, size: int) -> int:
        """Deliver what has come of the present payload; where the next frame starts."""
        wanted = self._left - self._padding
        taken = min(wanted, size - start)
        dropped = min(self._padding, size - start - taken)
        self._left -= taken + dropped
        self._padding -= dropped
        stream = self._into
        if stream is None or stream.is_remote_closed:
            self.credit -= taken
        elif taken == wanted:
            self._into = None
            self._deliver(stream, data, start, start + taken, self._final)
        elif taken:
            self._deliver(stream, data, start, start + taken, 0)
        return start + taken + dropped

    def _discard(self, data: bytes, start: int, size: int, length: int) -> int:
        """Step over a payload, now and as it comes."""
        self._left = self._padding = length
        self._into = None
        return self._resume(data, start, size)

    # --- HEADERS ----------------------------------------------------------------------------------

    def _headers(self, payload: bytes, flags: int, number: int) -> None:
        if not number:
            raise ConnectionFault(http2.PROTOCOL_ERROR, "HEADERS on stream 0")
        block = payload
        if flags & (http2.PADDED | http2.PRIORITISED):
            block = http2.without_padding(payload, flags)
        if not flags & http2.END_HEADERS:
            self._block, self._block_id, self._block_flags = [block], number, flags
            return
        self.on_head(number, block, flags & END_STREAM, b"", 0)
        if flags & http2.PRIORITISED:
            stream = self.streams.get(number)
            if stream is not None and _depends_on(payload, flags) == number:
                self.fail(stream, http2.PROTOCOL_ERROR)

    def _continuation(self, payload: bytes, flags: int, number: int) -> None:
        block = self._block
        if block is None:
            raise ConnectionFault(http2.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.append(payload)
        if len(block) > self._continuations + 1 or sum(map(len, block)) > self.head_limit:
            raise ConnectionFault(http2.ENHANCE_YOUR_CALM, "a header block that does not end")
        if flags & http2.END_HEADERS:
            self._block = None
            self.on_head(number, b"".join(block), self._block_flags & END_STREAM, b"", 0)

    def check_not_idle(self, number: int) -> None:
        """`ConnectionFault` for a frame on a stream that nobody has opened."""
        if number > self.last_id or not number & 1:
            raise ConnectionFault(
                http2.PROTOCOL_ERROR, f"a frame on stream {number}, which is idle"
            )


def _depends_on(payload: bytes, flags: int) -> int:
    return http2.number(payload, 1 if flags & http2.PADDED else 0)
