"""A client's HTTP/2 connection: its calls, and what it may ask of us.

The server's side of RFC 9113 3.4 (the preface), 5.1 (ids that are odd and rise) and 8.1 (heads),
and the limits that keep one client from costing the others: see `core.limits`.
"""

import asyncio
from typing import Any

from serve.core import faults
from serve.core.calls import Reply, Verb
from serve.core.errors import NoRoom
from serve.listeners.grpc.call import ClientCall, OwnCall
from serve.listeners.grpc.context import ClientLink, GrpcContext
from serve.listeners.grpc.service_call import serve
from serve.listeners.grpc.stream_call import StreamCall
from serve.listeners.grpc.unary_call import UnaryCall
from serve.wire import http2, kserve_grpc, protobuf
from serve.wire.grpc_heads import status_block
from serve.wire.grpc_requests import RequestHead
from serve.wire.hpack_blocks import HeaderBlocks
from serve.wire.http2 import (
    END_STREAM,
    ENHANCE_YOUR_CALM,
    PROTOCOL_ERROR,
    ConnectionFault,
    Malformed,
)
from serve.wire.http2_stream import Stream
from serve.wire.status import OK

PERIOD = 10.0  # seconds in which resets and control frames are counted
LAST_WORD = 0.5  # seconds between the two GOAWAYs of a drain
LINGER = 2.0  # seconds for a client to take what was written when its connection is closed
_SMALL = 1 << 12  # bytes
_MOST_UPDATES = 1 << 12  # that may be due from one period to the next
_CANCELLED = 10  # times as many resets of calls are taken: deadlines that pass under load are some


class GrpcClientConnection(ClientLink):
    """One client. It is one of `clients`, all that are connected, until its connection is closed.

    (Not before there is one: a TLS handshake that fails tells nobody.)

    A client that exceeds a limit of control frames or resets is asked to go: GOAWAY says which of
    its streams were taken, those calls get their answers, and then the connection ends. One that
    exceeds it again is cut off, and so is one that breaks a rule of HTTP/2 itself.
    """

    __slots__ = (
        "_blocks",
        "_cancelled",
        "_clients",
        "_closed_at",
        "_consumed",
        "_context",
        "_faults",
        "_idle_since",
        "_is_going",
        "_last_taken",
        "_last_word",
        "_limits",
        "_period",
        "_talk",
        "_was_warned",
        "_whole_at",
    )

    def __init__(self, context: GrpcContext, clients: set["GrpcClientConnection"]) -> None:
        super().__init__(context)
        self._context = context
        self._limits = context.limits
        self._clients = clients
        self.preface = http2.PREFACE
        self._blocks = HeaderBlocks(context.heads, context.limits.head)
        self._last_word: float | None = None  # when the second GOAWAY is due
        self._is_going = False  # it has been said
        self._last_taken = 0  # the stream that it named
        self._was_warned = False  # it was said because a limit was exceeded
        self._talk = self._faults = self._cancelled = 0  # in the present period
        self._idle_since = self._whole_at = self._period = context.clock()
        self._consumed = 0  # bytes of whole frames that the last sweep knew
        self._closed_at = 0.0

    # --- streams ----------------------------------------------------------------------------------

    def on_head(self, number: int, block: bytes, end: int, data: bytes, after: int) -> int:
        """A new call, or trailers of one, which say nothing to us."""
        if number <= self.last_id or not number & 1:
            self._on_trailers(number, block, end)
            return after
        self.last_id = number
        self.updates_due += 2  # who opens a stream may widen it at once
        try:
            head = self._blocks.known.get(block) or self._blocks.read(block)
        except Malformed:
            self.send(http2.rst_stream(number, PROTOCOL_ERROR))
            self.on_stream_fault()
            return after
        if head.is_unary and not end and not self._is_going and self._has_room():
            self.streams[number] = call = UnaryCall(self, number, self._context, head)
            if after + http2.HEAD_SIZE < len(data):
                return self._on_rest(call, data, after)
        elif not self._is_going:
            self._on_call(number, head, end)
        return after

    def _on_rest(self, call: UnaryCall, data: bytes, after: int) -> int:
        """Take along one small DATA frame, when it is all that follows the head."""
        word, flags, number = http2.read_head(data, after)
        start = after + http2.HEAD_SIZE
        end = start + (word >> 8)
        if number != call.id or word & 0xFF or flags != END_STREAM or end > len(data):
            return after
        if end - start > _SMALL:
            return after
        self.credit -= end - start
        call.is_remote_closed = True
        call.on_data(data[start:end], END_STREAM)
        return end

    def _has_room(self) -> bool:
        """Whether the connection may have another call, and the worker more bytes to hold."""
        limits = self._limits
        return len(self.streams) < limits.streams and self._context.board.held < limits.in_flight

    def _on_call(self, number: int, head: RequestHead, end: int) -> None:
        if len(self.streams) >= self._limits.streams:
            self.send(http2.rst_stream(number, http2.REFUSED_STREAM))
            self.on_idle_talk()
            return
        call = self._call(number, head)
        self.streams[number] = call
        call.is_remote_closed = bool(end)
        if head.status:
            call.end_with(status_block(head.status))
        elif head.error is not None:
            call.fail(head.error)
        elif self._context.board.held >= self._limits.in_flight:
            call.fail(NoRoom(self._limits.in_flight))
        elif end:
            call.on_data(b"", END_STREAM)

    def _call(self, number: int, head: RequestHead) -> ClientCall:
        context = self._context
        if head.verb is Verb.STREAM:
            return StreamCall(self, number, context, head)
        if head.verb is not None:
            return UnaryCall(self, number, context, head)
        service = context.services.get(head.method)
        if service is not None:
            return serve(self, number, context, head, service)
        is_true = True
        if head.method == kserve_grpc.SERVER_READY:
            is_true = context.gateway.is_ready() and not context.is_draining()
        return OwnCall(self, number, context, head, Reply(OK, protobuf.boolean(1, is_true)))

    def _on_trailers(self, number: int, block: bytes, end: int) -> None:
        """A head on a stream that was opened before: it ends the request, or crossed our answer."""
        self.check_not_idle(number)
        self._blocks.skip(block)
        stream = self.streams.get(number)
        if stream is None:
            return
        if stream.is_remote_closed:
            self.fail(stream, http2.STREAM_CLOSED)
        elif not end:
            self.fail(stream, PROTOCOL_ERROR)
        else:
            stream.is_remote_closed = True
            stream.on_data(b"", END_STREAM)
            if stream.is_local_closed:
                self.forget(stream)

    # --- limits -----------------------------------------------------------------------------------

    def on_idle_talk(self) -> None:
        """See `Link`."""
        self._talk += 1
        if self._talk > self._limits.pings:
            self._calm(f"more than {self._limits.pings} control frames")

    def on_stream_fault(self) -> None:
        """See `Link`."""
        self._faults += 1
        if self._faults > self._limits.resets:
            self._calm(f"more than {self._limits.resets} streams reset")

    def on_stream_reset(self, stream: Stream) -> None:
        """See `Link`. What became a call was cancelled, or its deadline has passed.

        That is no abuse as such, for it keeps its slot where its replica still works on it.
        """
        if not stream.has_begun:  # type: ignore[attr-defined]
            self.on_stream_fault()
            return
        self._cancelled += 1
        most = _CANCELLED * self._limits.resets
        if self._cancelled > most:
            self._calm(f"more than {most} calls cancelled")

    def _calm(self, why: str) -> None:
        """A limit is exceeded: the client is to go when its calls have ended, or at once."""
        has_calls = any(one.has_begun for one in self.streams.values())  # type: ignore[attr-defined]
        if self._was_warned or not has_calls:
            raise ConnectionFault(ENHANCE_YOUR_CALM, why)
        self._was_warned = True
        self._talk = self._faults = self._cancelled = 0
        self._say_last(ENHANCE_YOUR_CALM, why)

    @property
    def last_taken(self) -> int:
        """See `Connection`."""
        return self._last_taken if self._is_going else self.last_id

    def sweep(self, now: float) -> None:
        """Look at the clock: deadlines of calls, and what the connection itself owes."""
        if self.is_closed:
            if now - self._closed_at > LINGER and self.transport is not None:
                self.transport.abort()
            return
        if now - self._period >= PERIOD:
            self._talk = self._faults = self._cancelled = 0
            self._period = now
            self.updates_due = min(self.updates_due, _MOST_UPDATES)
        for call in tuple(self.streams.values()):
            try:
                call.sweep(now)  # type: ignore[attr-defined]
            except Exception as error:
                call.on_fault(error)  # type: ignore[attr-defined]
        if self._consumed != self.consumed or not self.is_inside_head:
            self._consumed, self._whole_at = self.consumed, now
        if self.streams:
            self._idle_since = now
        if now - self._whole_at > self._limits.head_time:
            self.close(ENHANCE_YOUR_CALM, "the request head does not end")
        elif now - self._idle_since > self._limits.idle:
            self.close()
        elif self._last_word is not None and now >= self._last_word:
            self._go()

    # --- coming and going -------------------------------------------------------------------------

    def drain(self) -> None:
        """Ask the client to go: new calls still get through until it has read this."""
        if self.is_closed or self._last_word is not None:
            return
        self._last_word = self._context.clock() + LAST_WORD
        self.send(http2.goaway(http2.LAST_STREAM, http2.NO_ERROR))

    def _go(self) -> None:
        if not self._is_going:
            self._say_last(http2.NO_ERROR)
        if not self.streams:
            self.close()

    def _say_last(self, code: int, why: str = "") -> None:
        """Take no more calls, and say which one was the last."""
        if not self._is_going:
            self._last_word = self._context.clock()
            self._last_taken = self.last_id
            self._is_going = True
        self.send(http2.goaway(self._last_taken, code, why))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `Connection`. Beyond the limit it ends before a word is said.

        A GOAWAY would be kinder, but says that calls were not processed: grpcio 1.85 then repeats
        them at once and for ever, without another connection, until its memory is full. One that
        ends before SETTINGS has failed, and clients wait longer and longer before the next.
        Over TLS a client that did not agree to HTTP/2 (RFC 9113 3.3) gets nothing to read either.
        """
        super().connection_made(transport)
        self.guarded(self._greet, transport)

    def _greet(self, transport: asyncio.BaseTransport) -> None:
        self.peer = _address(transport.get_extra_info("peername"))
        secure = transport.get_extra_info("ssl_object")
        is_welcome = len(self._clients) < self._limits.connections
        self._clients.add(self)
        if not is_welcome:
            self.abort("too many connections")
            return
        if secure is not None and secure.selected_alpn_protocol() != "h2":
            self._end("TLS without ALPN h2")
            transport.close()
            return
        self.send(self.opening({http2.MAX_CONCURRENT_STREAMS: self._limits.streams}))
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """See `Connection`."""
        self._clients.discard(self)
        super().connection_lost(error)

    def on_fault(self, error: Exception) -> None:
        """See `Outflow`. A transport that has failed may not say that it is closed."""
        self._clients.discard(self)
        super().on_fault(error)

    def pause_writing(self) -> None:
        """A client that reads nothing gets no more to read, and is not read itself."""
        super().pause_writing()
        if self.transport is not None and not self.is_closed:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        if self.transport is not None and not self.is_closed:
            self.transport.resume_reading()
        super().resume_writing()

    def on_acknowledged(self) -> None:
        """See `Link`."""
        self._blocks.acknowledged()

    def on_goaway(self, last: int, code: int) -> None:
        """The client will open no more calls; those that it has are answered."""

    def on_closed(self, why: str) -> None:
        """All its calls have lost their client."""
        self._closed_at = self._context.clock()
        for call in tuple(self.streams.values()):
            self.forget(call)
            faults.contained(call, call.on_reset, http2.CANCEL)


def _address(peer: Any) -> str:
    """What a socket says of its other end, as people write it; empty for what has no address."""
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
