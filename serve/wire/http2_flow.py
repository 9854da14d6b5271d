"""Flow control (RFC 9113 5.2): what a link may send now, what waits, and what credit it gives back.

Theory. DATA may go out while three have room: the stream's window, the connection's window, and the
transport. What cannot go out waits in the stream's queue. Streams that wait for nothing but the
connection stand in `_ready` and send one frame each in turn, so none starves; one that waits for
its own window is in no list and comes back with its WINDOW_UPDATE.

Bytes go from stream to stream: a stream's `source` is the one that its DATA came from. The source
gets its credit back when the bytes go out, so a slow reader holds up to one window and no more, and
only its own stream. The connection gets its credit back as bytes come in: streams do not wait for
each other.

    source ── piece ──▶ stream.queue ── frame ──▶ out ── flush ──▶ transport
       ▲                                  │
       └────────── consume(n) ◀───────────┘
"""

from abc import ABC, abstractmethod
from collections import deque

from serve.wire import http2
from serve.wire.http2 import DEFAULT_WINDOW, END_HEADERS, END_STREAM, HEAD, HEADERS
from serve.wire.http2_stream import WORTH_GIVING, Piece, Stream

CONNECTION_WINDOW = 1 << 26
_BURST = 1 << 19  # bytes of output that are collected before the transport is asked for room
_UPDATES = (
    4  # WINDOW_UPDATEs that a frame of DATA may be answered with; gRPC's C core sends up to 3
)
_THRIFTY = 4  # a waiting piece that is a smaller part than this of what it was read with is copied
_pack = HEAD.pack


class FlowBoard:
    """What all connections of a worker share: the bytes they hold, and who has output to flush."""

    __slots__ = ("dirty", "held")

    def __init__(self) -> None:
        self.held = 0
        self.dirty: list[Outflow] = []

    def __repr__(self) -> str:
        return f"<FlowBoard held={self.held} dirty={len(self.dirty)}>"

    def flush(self) -> None:
        """Write what has been collected: once per connection and turn of the loop."""
        while self.dirty:
            one = self.dirty.pop()
            try:
                one.flush()
            except Exception as error:  # not of the connection that flushes
                one.on_fault(error)


class Outflow(ABC):
    """The sending half of a connection. `flush`, which writes `out`, is left to those with I/O."""

    __slots__ = (
        "_ready",
        "board",
        "is_choked",
        "out",
        "out_size",
        "peer_frame",
        "peer_window",
        "send_window",
        "streams",
        "table_update",
        "updates_due",
    )

    def __init__(self, board: FlowBoard) -> None:
        self.board = board
        self.streams: dict[int, Stream] = {}
        self.out: list[Piece] = []
        self.out_size = 0  # of the DATA in it
        self.is_choked = False  # the transport has no room
        self.send_window = DEFAULT_WINDOW
        self.peer_window = DEFAULT_WINDOW  # of a new stream
        self.peer_frame = http2.SMALLEST_FRAME
        self.table_update = b""  # said once, in front of the next header block
        self.updates_due = 0  # WINDOW_UPDATEs that the peer may send for what we sent
        self._ready: dict[int, Stream] = {}  # wait for the connection alone

    @abstractmethod
    def flush(self) -> None:
        """Write what has been collected."""

    @abstractmethod
    def on_fault(self, error: Exception) -> None:
        """Our own code has failed for this connection: it ends, and no other does."""

    # --- sending ----------------------------------------------------------------------------------

    def send(self, frames: bytes) -> None:
        """Add whole frames that no window counts."""
        if not self.out:
            self.board.dirty.append(self)
        self.out.append(frames)

    def send_head(self, stream: Stream, block: bytes, end: int = 0) -> None:
        """Open a stream or answer on it; a block that ends it follows what is queued."""
        size = len(block)
        if size > self.peer_frame or self.table_update or (end and stream.queue):
            self._send_unusual_head(stream, block, end)
            return
        out = self.out
        if not out:
            self.board.dirty.append(self)
        out.append(_pack(size << 8 | HEADERS, END_HEADERS | end, stream.id))
        out.append(block)
        if end:
            stream.is_local_closed = True
            if stream.is_remote_closed:
                self.forget(stream)

    def send_both(self, stream: Stream, block: bytes, piece: Piece, end: int = 0) -> None:
        """A head and the first DATA behind it, which is the usual way to open a stream."""
        size = len(piece)
        if (
            size > stream.send_window
            or size > self.send_window
            or size > self.peer_frame
            or len(block) > self.peer_frame
            or self.is_choked
            or self.table_update
        ):
            self.send_head(stream, block)
            self.send_data(stream, piece, end)
            return
        out, number = self.out, stream.id
        if not out:
            self.board.dirty.append(self)
        head = _pack(len(block) << 8 | HEADERS, END_HEADERS, number)
        out += (head, block, _pack(size << 8, end, number), piece)
        self.send_window -= size
        stream.send_window -= size
        self.out_size += size
        self.updates_due += _UPDATES
        source = stream.source
        if source is not None:
            source.owed += size  # less than is worth giving: it is the first
        if end:
            stream.is_local_closed = True
            if stream.is_remote_closed:
                self.forget(stream)

    def send_all(self, stream: Stream, block: bytes, piece: Piece, trailers: bytes) -> bool:
        """A whole answer, on a stream whose other side has ended; False when there is no room."""
        size, largest = len(piece), self.peer_frame
        if (
            size > stream.send_window
            or size > self.send_window
            or size > largest
            or len(block) > largest
            or len(trailers) > largest
            or self.is_choked
            or self.table_update
        ):
            return False
        self.send_window -= size
        self.updates_due += _UPDATES
        self.out_size += size
        out, number = self.out, stream.id
        if not out:
            self.board.dirty.append(self)
        out += (
            _pack(len(block) << 8 | HEADERS, END_HEADERS, number),
            block,
            _pack(size << 8, 0, number),
            piece,
            _pack(len(trailers) << 8 | HEADERS, END_HEADERS | END_STREAM, number),
            trailers,
        )
        self.forget(stream)
        return True

    def _send_unusual_head(self, stream: Stream, block: bytes, end: int) -> None:
        if end and stream.queue:
            stream.trailers = block
            return
        block, self.table_update = self.table_update + block, b""
        self.send(http2.head_frames(stream.id, block, end, self.peer_frame))
        if end:
            self.close_local(stream)

    def send_data(self, stream: Stream, piece: Piece, end: int = 0) -> None:
        """Send DATA now as far as there is room, and queue the rest."""
        size = len(piece)
        if (
            size <= stream.send_window
            and size <= self.send_window
            and size <= self.peer_frame
            and not stream.queue
            and not self.is_choked
        ):
            self._emit(stream, piece, size, end)
            if end:
                stream.is_local_closed = True
                if stream.is_remote_closed:
                    self.forget(stream)
            return
        if not size and not stream.queue:
            self._emit(stream, piece, 0, end)  # no window counts an empty frame
            if end:
                self.close_local(stream)
            return
        stream.ends = bool(end)
        if size:
            self._enqueue(stream, piece, size)
        if stream.send_window > 0:
            self._ready[stream.id] = stream
            self.pump()

    def reset(self, stream: Stream, code: int) -> None:
        """End a stream at once in both directions."""
        self.send(http2.rst_stream(stream.id, code))
        self.forget(stream)

    def close_local(self, stream: Stream) -> None:
        """Our side of a stream has ended; it is over when the other has, too."""
        stream.is_local_closed = True
        if stream.is_remote_closed:
            self.forget(stream)

    def forget(self, stream: Stream) -> None:
        """Drop a stream and what waits on it."""
        self.streams.pop(stream.id, None)
        stream.is_local_closed = stream.is_remote_closed = True
        if stream.queue:
            self.drop_queue(stream)

    def drop_queue(self, stream: Stream) -> None:
        """What waits on this stream will not be sent."""
        self._ready.pop(stream.id, None)
        self.board.held -= stream.queued
        stream.queue, stream.queued, stream.trailers, stream.ends = None, 0, None, False

    # --- waiting ----------------------------------------------------------------------------------

    def widen(self, stream: Stream, increment: int) -> bool:
        """A stream's window has grown; False when it grows beyond what RFC 9113 6.9.1 allows."""
        stream.send_window += increment
        if stream.queue and stream.send_window > 0:
            self._ready[stream.id] = stream
        return stream.send_window <= http2.LARGEST_WINDOW

    def pump(self) -> None:
        """Send what waits, one frame of each stream in turn, until there is no room."""
        ready = self._ready
        while ready and self.send_window > 0 and not self.is_choked:
            stream = ready.pop(next(iter(ready)))
            self._send_one(stream)
            if stream.queue and stream.send_window > 0:
                ready[stream.id] = stream
            if self.out_size >= _BURST:
                self.flush()

    def _send_one(self, stream: Stream) -> None:
        """The next frame of a stream that has something queued and a window for it."""
        queue = stream.queue
        assert queue is not None
        piece = queue.popleft()
        size = len(piece)
        room = min(stream.send_window, self.send_window, self.peer_frame)
        if size > room:
            view = memoryview(piece)
            queue.appendleft(view[room:])
            piece, size = view[:room], room
        stream.queued -= size
        self.board.held -= size
        if queue:
            self._emit(stream, piece, size, 0)
            return
        stream.queue = None
        self._emit(stream, piece, size, END_STREAM if stream.ends else 0)
        if stream.ends:
            self.close_local(stream)
        elif stream.trailers is not None:
            self.send_head(stream, stream.trailers, END_STREAM)
        else:
            stream.on_drained()

    def _emit(self, stream: Stream, piece: Piece, size: int, end: int) -> None:
        out = self.out
        if not out:
            self.board.dirty.append(self)
        out.append(_pack(size << 8, end, stream.id))
        if size:
            out.append(piece)
        self.send_window -= size
        stream.send_window -= size
        self.out_size += size
        self.updates_due += _UPDATES
        source = stream.source
        if source is not None:
            source.owed += size
            if source.owed >= WORTH_GIVING:
                source.give_credit()

    def _enqueue(self, stream: Stream, piece: Piece, size: int) -> None:
        if isinstance(piece, memoryview) and size * _THRIFTY < len(piece.obj):  # type: ignore[arg-type]
            piece = bytes(piece)
        if stream.queue is None:
            stream.queue = deque()
        stream.queue.append(piece)
        stream.queued += size
        self.board.held += size
