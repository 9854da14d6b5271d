"""One HTTP/1.1 connection to a Triton: a request goes out in pieces, its answer comes in pieces.

    idle ── begin ──▶ awaiting the head ──▶ body by length ────┐
     ▲                  │        │   └────▶ body by chunks ─────┤ complete
     │                  │        └────────▶ body until the end ─┤
     └──────────────────┴────────── given back ◀────────────────┘

No task and no future is made: what comes is handed to the `Consumer` of the call, which was told to
`begin`. A connection whose framing went wrong, or whose call was given up, is closed and not used
again. Answers with chunks are read by llhttp, the others here: their head is nearly always known.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from serve.core import faults
from serve.wire.http_head import LONGEST, BadHead, ReplyHead, ReplyHeads

HIGH_WATER = 256 << 10  # bytes that wait to be written before the other side is paused
_MOST_INTERIM = 8  # answers with a status below 200 before the real one
_heads = ReplyHeads()


class Consumer(Protocol):
    """Whoever waits for an answer; it ends with `reply_end` or `reply_broken`, never both."""

    def reply_head(self, head: ReplyHead, body: bytes, *, is_whole: bool) -> None:
        """The head has come, with the body as far as it came with it; `is_whole`: that is all."""

    def reply_body(self, data: bytes) -> None:
        """More of the body."""

    def reply_end(self) -> None:
        """The answer is complete (not called when it came whole with its head)."""

    def reply_broken(self, why: str) -> None:
        """No complete answer will come. The connection is closed."""

    def request_paused(self) -> None:
        """Too much of the request waits to be written."""

    def request_resumed(self) -> None:
        """The rest may come."""

    def on_fault(self, error: Exception) -> None:
        """One of these has failed: end the call. The connection is closed."""


class HttpConnection(asyncio.Protocol):
    """One connection. `is_open` says whether a request may still be written."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None
        self.consumer: Consumer | None = None
        self._head = b""  # of an answer, as far as it has come
        self._reply: ReplyHead | None = None
        self._left = 0  # bytes of the body that are owed
        self._chunks: httptools.HttpResponseParser | None = None
        self.is_reading_paused = False
        self._interim = 0  # answers with a status below 200 so far
        self._tells_when_drained = False

    def __repr__(self) -> str:
        state = "closed" if not self.is_open else "busy" if self.consumer else "idle"
        return f"<HttpConnection {self.address[0]}:{self.address[1]} {state}>"

    @property
    def is_open(self) -> bool:
        """Whether a request may still be written."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether the answer was complete and another request may follow."""
        if self.consumer is not None or self.transport is None or self.transport.is_closing():
            return False
        return self._reply is None or self._reply.keeps_alive

    @property
    def has_sent_all(self) -> bool:
        """Whether everything that was written has gone out."""
        return self.transport is not None and not self.transport.get_write_buffer_size()

    @property
    def awaits_answer(self) -> bool:
        """Whether all that was written has gone out, and nothing of the answer has come."""
        return self.consumer is not None and self._reply is None and self.has_sent_all

    @property
    def answer_left(self) -> int:
        """Bytes of the answer's body that have not come yet; 0 where that is not known."""
        return self._left

    def begin(self, consumer: Consumer) -> None:
        """A call begins; its bytes follow through `write`."""
        assert self.consumer is None
        self.consumer = consumer
        self._reply = None
        if self._head:
            self._head = b""
        if self._chunks is not None:
            self._chunks = None
        if self._interim:
            self._interim = 0

    def hand_over(self, consumer: Consumer) -> None:
        """From now on another consumer waits for the answer, of which nothing has come."""
        assert self.consumer is not None and self._reply is None
        self.consumer = consumer

    def write(self, *pieces: bytes) -> None:
        """Write a part of the request; small parts are joined, large ones are not copied."""
        transport = self.transport
        assert transport is not None
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)

    def fileno(self) -> int:
        """The socket's descriptor, for splicing."""
        assert self.transport is not None
        descriptor: int = self.transport.get_extra_info("socket").fileno()
        return descriptor

    def tell_when_drained(self) -> None:
        """Call the consumer's `request_resumed` once nothing waits to be written any more."""
        transport = self.transport
        assert transport is not None and self.consumer is not None
        if transport.get_write_buffer_size():
            self._tells_when_drained = True
            transport.set_write_buffer_limits(0)
        else:
            self.consumer.request_resumed()

    def abort(self) -> None:
        """Close at once; nobody is told any more."""
        self.consumer = None
        if self.transport is not None:
            self.transport.abort()

    def cut(self, why: str) -> None:
        """Close at once; the call on it hears that no complete answer will come."""
        self._break(why)

    def pause_answer(self) -> None:
        """Read no more until `resume_answer`."""
        if self.is_open and not self.is_reading_paused and self.transport is not None:
            self.is_reading_paused = True
            self.transport.pause_reading()

    def resume_answer(self) -> None:
        """Read on."""
        if self.is_reading_paused:
            self.is_reading_paused = False
            if self.is_open and self.transport is not None:
                self.transport.resume_reading()

    def answer_was_moved(self) -> None:
        """The rest of the body went past this object, by splicing: the answer is complete."""
        self._left = 0
        self.consumer = None
        self.resume_answer()

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.transport.set_write_buffer_limits(HIGH_WATER)

    def pause_writing(self) -> None:
        """Triton reads more slowly than we write."""
        consumer = self.consumer
        if consumer is not None:
            self._guarded(consumer, consumer.request_paused)

    def resume_writing(self) -> None:
        """Most of what waited is written."""
        if self._tells_when_drained and self.transport is not None:
            self._tells_when_drained = False
            self.transport.set_write_buffer_limits(HIGH_WATER)
        consumer = self.consumer
        if consumer is not None:
            self._guarded(consumer, consumer.request_resumed)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer; bytes that nobody asked for end the connection."""
        consumer = self.consumer
        if consumer is None:
            self.abort()
            return
        try:
            if self._reply is None:
                self._read_head(consumer, data)
            else:
                self._read_body(consumer, self._reply, data)
        except Exception as error:
            self._on_fault(consumer, error)

    def _guarded(self, consumer: Consumer, act: Callable[..., None], *arguments: object) -> None:
        """What a consumer does wrong ends its call and this connection, and nothing else."""
        try:
            act(*arguments)
        except Exception as error:
            self._on_fault(consumer, error)

    def _on_fault(self, consumer: Consumer, error: Exception) -> None:
        self.abort()
        faults.contained(consumer, consumer.on_fault, error)

    def _read_body(self, consumer: Consumer, reply: ReplyHead, data: bytes) -> None:
        if self._chunks is not None:
            self._feed(data)
        elif reply.length is None:
            consumer.reply_body(data)
        else:
            self._left -= len(data)
            if self._left < 0:
                self._break("the response is longer than its Content-Length")
                return
            consumer.reply_body(data)
            if self._left == 0 and self.consumer is consumer:
                self._complete(consumer)

    def connection_lost(self, error: Exception | None) -> None:
        """The other side has closed; that completes an answer whose end nothing else tells."""
        consumer, self.consumer = self.consumer, None
        if consumer is None:
            return
        reply = self._reply
        ends_so = reply is not None and reply.length is None and not reply.is_chunked
        if error is None and ends_so:
            self._guarded(consumer, consumer.reply_end)
        else:
            why = str(error) if error else "the connection was closed"
            self._guarded(consumer, consumer.reply_broken, why)

    # --- reading ----------------------------------------------------------------------------------

    def _read_head(self, consumer: Consumer, data: bytes) -> None:
        if self._head:
            data = self._head + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            if len(data) > LONGEST:
                self._break("the head of the response is too long")
            return
        try:
            reply = _heads.read(data[:end])
        except BadHead as error:
            self._break(str(error))
            return
        end += 4
        self._reply = reply
        if reply.length is not None and reply.status >= 200:
            left = self._left = reply.length - len(data) + end
            if left == 0:
                self.consumer = None
                consumer.reply_head(reply, data[end:], is_whole=True)
            elif left > 0:
                consumer.reply_head(reply, data[end:], is_whole=False)
            else:
                self._break("the response is longer than its Content-Length")
        else:
            self._read_unusual(consumer, reply, data, end)

    def _read_unusual(self, consumer: Consumer, reply: ReplyHead, data: bytes, end: int) -> None:
        """An answer whose head does not say how long it is, or one that is only an interim one."""
        if reply.status == 101:
            self._break("Triton switched protocols")
        elif reply.status < 200:
            self._head, self._reply = b"", None
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                self._break("too many interim responses")
            elif data[end:]:
                self._read_head(consumer, data[end:])
        elif reply.is_chunked:
            self._chunks = httptools.HttpResponseParser(_Chunks(self))
            consumer.reply_head(reply, b"", is_whole=False)
            self._feed(data)
        else:
            consumer.reply_head(reply, data[end:], is_whole=False)

    def _feed(self, data: bytes) -> None:
        parser = self._chunks
        assert parser is not None
        try:
            parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # a fault of ours, not of Triton's
        except httptools.HttpParserError as error:
            if self._chunks is parser:  # the connection may serve the next call already
                self._break(str(error) or "the chunks of the response are malformed")

    def _complete(self, consumer: Consumer) -> None:
        self.consumer = None
        consumer.reply_end()

    def _break(self, why: str) -> None:
        consumer = self.consumer
        self.abort()
        if consumer is not None:
            consumer.reply_broken(why)


class _Chunks:
    """What llhttp calls while it reads an answer with chunks."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection: HttpConnection | None = connection

    def on_body(self, data: bytes) -> None:
        if self._connection is not None and self._connection.consumer is not None:
            self._connection.consumer.reply_body(data)

    def on_message_complete(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.consumer is not None:
            connection._complete(connection.consumer)
