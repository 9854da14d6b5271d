"""One end of an HTTP/2 connection (RFC 9113), without I/O: bytes in, what they mean to `on_…`.

Theory. Whoever breaks a rule of the connection gets a GOAWAY (`ConnectionFault`), of a stream a
RST_STREAM (`fail`):

    rule                                                            costs    code
    frame on an idle stream, wrong parity, PUSH_PROMISE             link     PROTOCOL_ERROR
    other frames between HEADERS and its last CONTINUATION          link     PROTOCOL_ERROR
    frame larger than we said, fixed sizes not kept                 link     FRAME_SIZE_ERROR
    more DATA than the connection's window, or a window overflows   link     FLOW_CONTROL_ERROR
    more DATA than the stream's window, or its window overflows     stream   FLOW_CONTROL_ERROR
    WINDOW_UPDATE by 0 (of the connection: costs the link)          stream   PROTOCOL_ERROR
    a stream that depends on itself                                 stream   PROTOCOL_ERROR
    DATA after END_STREAM                                           stream   STREAM_CLOSED
    frames on a stream that is gone (they may have crossed)         nothing
    more continuations than allowed                                 link     ENHANCE_YOUR_CALM
    more control frames or resets than allowed                      its owner says
"""

from abc import abstractmethod
from collections.abc import Callable

from serve.wire import http2
from serve.wire.http2 import (
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    LARGEST_WINDOW,
    PROTOCOL_ERROR,
    ConnectionFault,
)
from serve.wire.http2_flow import CONNECTION_WINDOW
from serve.wire.http2_reader import Http2Reader
from serve.wire.http2_stream import STREAM_WINDOW, Stream

_MANY_SETTINGS = 6 * 64  # bytes
_DEFAULT_TABLE = 4096


class Link(Http2Reader):
    """The frames that hold neither DATA nor heads, and what both sides say first."""

    __slots__ = ()

    def opening(self, extra: dict[int, int]) -> bytes:
        """Our SETTINGS, and the window of the connection."""
        values = {
            http2.HEADER_TABLE_SIZE: 0,
            http2.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            http2.MAX_FRAME_SIZE: self.frame_limit,
            http2.MAX_HEADER_LIST_SIZE: self.head_limit,
        }
        more = CONNECTION_WINDOW - http2.DEFAULT_WINDOW
        return http2.settings(values | extra) + http2.window_update(0, more)

    # --- what an owner overrides ------------------------------------------------------------------

    @abstractmethod
    def on_goaway(self, last: int, code: int) -> None:
        """The peer will not look at streams above `last`."""

    def on_stream_reset(self, stream: Stream) -> None:
        """The peer has reset this stream, which has heard of it."""
        self.on_stream_fault()

    def on_settings(self, values: dict[int, int]) -> None:
        """The peer's settings are in force."""

    def on_acknowledged(self) -> None:
        """The peer has taken our settings."""

    # --- frames -----------------------------------------------------------------------------------

    def on_frame(self, kind: int, payload: bytes, flags: int, number: int) -> None:
        """One of the types from PRIORITY to WINDOW_UPDATE."""
        _HANDLERS[kind](self, payload, flags, number)

    def _priority(self, payload: bytes, flags: int, number: int) -> None:
        if not number:
            raise ConnectionFault(PROTOCOL_ERROR, "PRIORITY on stream 0")
        self.on_idle_talk()
        stream = self.streams.get(number)
        if stream is not None and len(payload) != 5:
            self.fail(stream, FRAME_SIZE_ERROR)
        elif stream is not None and http2.number(payload) == number:
            self.fail(stream, PROTOCOL_ERROR)

    def _rst_stream(self, payload: bytes, flags: int, number: int) -> None:
        _check_size(payload, 4)
        self.check_not_idle(number)
        stream = self.streams.get(number)
        if stream is not None:
            self.forget(stream)
            stream.on_reset(http2.code_of(payload))
            self.on_stream_reset(stream)

    def _settings(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & http2.ACK:
            _check_size(payload, 0)
            self.on_acknowledged()
            return
        if len(payload) > _MANY_SETTINGS:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many settings")
        self.on_idle_talk()
        values: dict[int, int] = {}
        for setting, value in http2.read_settings(payload):
            values[setting] = value
            if setting == http2.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
        self.peer_frame = values.get(http2.MAX_FRAME_SIZE, self.peer_frame)
        if values.get(http2.HEADER_TABLE_SIZE, _DEFAULT_TABLE) < _DEFAULT_TABLE:
            self.table_update = b"\x20"
        self.send(http2.frame(http2.SETTINGS, http2.ACK, 0))
        self.on_settings(values)
        self.pump()

    def _resize_windows(self, size: int) -> None:
        """RFC 9113 6.9.2: the windows of all streams move with the setting, even below 0."""
        change = size - self.peer_window
        self.peer_window = size
        for stream in self.streams.values():
            if not self.widen(stream, change):
                raise ConnectionFault(FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1")

    def _ping(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise ConnectionFault(PROTOCOL_ERROR, "PING on a stream")
        _check_size(payload, 8)
        if not flags & http2.ACK:
            self.on_idle_talk()
            self.send(http2.frame(http2.PING, http2.ACK, 0, payload))

    def _goaway(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise ConnectionFault(PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(FRAME_SIZE_ERROR, "GOAWAY without its numbers")
        self.on_goaway(http2.number(payload), http2.code_of(payload, 4))

    def _window_update(self, payload: bytes, flags: int, number: int) -> None:
        _check_size(payload, 4)
        increment = http2.number(payload)
        if self.updates_due > 0:  # DATA of ours is answered so
            self.updates_due -= 1
        else:
            self.on_idle_talk()
        if not number:
            self.send_window += increment
            if not increment:
                raise ConnectionFault(PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            if self.send_window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1")
            self.pump()
            return
        self.check_not_idle(number)
        stream = self.streams.get(number)
        if stream is None:
            return
        if not increment:
            self.fail(stream, PROTOCOL_ERROR)
        elif not self.widen(stream, increment):
            self.fail(stream, FLOW_CONTROL_ERROR)
        else:
            self.pump()

    def _push_promise(self, payload: bytes, flags: int, number: int) -> None:
        raise ConnectionFault(PROTOCOL_ERROR, "PUSH_PROMISE")


def _check_size(payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise ConnectionFault(
            FRAME_SIZE_ERROR, f"a payload of {len(payload)} bytes instead of {size}"
        )


_HANDLERS: dict[int, Callable[[Link, bytes, int, int], None]] = {
    http2.PRIORITY: Link._priority,
    http2.RST_STREAM: Link._rst_stream,
    http2.SETTINGS: Link._settings,
    http2.PUSH_PROMISE: Link._push_promise,
    http2.PING: Link._ping,
    http2.GOAWAY: Link._goaway,
    http2.WINDOW_UPDATE: Link._window_update,
}
