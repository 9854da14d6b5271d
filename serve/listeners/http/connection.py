"""A client's HTTP/1.1 connection: which way its requests go, and in which order answers go out.

uvicorn's protocol class brings the connection's life and the application's side; llhttp is the only
parser of requests. What happens once a head is complete is decided here:

| request                          | goes to                                                  |
|----------------------------------|----------------------------------------------------------|
| `POST /v2/models/…/infer`, and   | an `HttpPredictCall`, without a task, a future or a timer |
| `…/generate`, `…/generate_stream`|                                                          |
| anything else                    | the ASGI application, as uvicorn would have it           |

What a client may do wrong, and how long it may take, is bounded by `core.limits`.

Answers go out in the order of the requests. Requests that a client sends before the answer to an
earlier one wait in a queue, and no more is read meanwhile; nor while the client does not take its
answers. One is being answered at a time:

    queued ──▶ current ──▶ answered ──▶ the next one … until one is the last ──▶ `_finish`

Closing a socket with unread bytes in it resets the connection, and the reset can overtake the
answer. So the end is gentle: only our side is closed at first, and what still comes is dropped.
"""

import asyncio
import dataclasses
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from serve.core import faults
from serve.core.calls import Verb
from serve.core.errors import BadRequest, BodyTooLarge, HeadTooLarge, ServegateError, TooSlow
from serve.listeners.http.asgi import cycle_of
from serve.listeners.http.context import HttpContext
from serve.listeners.http.predict_call import HttpPredictCall
from serve.listeners.http.request import peer_of
from serve.triton.http_connection import HIGH_WATER
from serve.wire.http_head import written
from serve.wire.known_heads import KnownHead, Pattern, pattern_of
from serve.wire.kserve_http import (
    check_coding,
    check_expectation,
    infer_head,
    not_http,
    without_upgrade,
)
from serve.wire.origins import check_local, host_of
from serve.wire.request_ids import TOLD
from serve.wire.status import http_error

_GUESSES = 4  # how often a connection's heads are compared to find what varies in them
_CHUNK_OVERHEAD = 32  # bytes; a chunk's length, line ends, and a short extension
_LINGER = 2.0  # seconds in which what a refused client still sends is read and dropped
_LINGERING = 16 << 20  # bytes of it
_ESTABLISHED = 1  # of the kernel's `tcp_states.h`


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that is answered with an error of ours; `verb` decides the shape of the answer."""

    error: ServegateError
    request_id: bytes
    verb: Verb = Verb.INFER

    def written(self, *, keeps_alive: bool) -> bytes:
        """The whole answer."""
        reply = http_error(self.error, self.verb)
        named = dataclasses.replace(reply, headers=(*reply.headers, (TOLD, self.request_id)))
        return written(named, keeps_alive=keeps_alive)


QueuedRequest = HttpPredictCall | RequestResponseCycle | RefusedRequest


class HttpClientConnection(HttpToolsProtocol):
    """One connection of a client. Made by uvicorn; the listener is put in front by `partial`.

    `is_plain`: the socket carries the bytes as they are, without TLS. `is_answer_paused`: the
    client reads more slowly than we write.
    """

    def __init__(
        self,
        context: HttpContext,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.is_answer_paused = False
        self.is_plain = True
        self._context = context
        self._current: QueuedRequest | None = None  # is being answered
        self._waiting: deque[QueuedRequest] = deque()
        self._is_going_on = False
        self._since = context.now  # since when nothing happens, or a head is owed
        self._is_last = False  # no request may follow on this connection
        self._drops = 0  # bytes that may still be dropped; 0 while requests are read
        self._tells_when_drained = False
        # whose body the parser reads
        self._reading: HttpPredictCall | RequestResponseCycle | None = None
        self._in_head = False
        self._is_at_rest = True  # the parser is between two requests
        self._start = b""  # the head that came last, if its request came in one piece
        self._pattern: Pattern | None = None  # of the heads of this connection
        self._guesses = _GUESSES
        self._fed = 0  # bytes since the last read that began between two requests
        self._overhead = 0  # bytes since the last head that were neither head nor body
        self._chunk_count = 0

    def __repr__(self) -> str:
        return (
            f"<HttpClientConnection {self.client} {self._current!r} waiting={len(self._waiting)}>"
        )

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open; beyond the limit it is closed at once."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._context.clients.add(self)
        self.is_plain = self.scheme == "http"
        self.transport.set_write_buffer_limits(HIGH_WATER)
        if len(self._context.clients) > self._context.limits.connections:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it every call on it."""
        self._context.clients.discard(self)
        self._is_last = True
        self._forget_all()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and let the call that it began or went on with begin."""
        if self._drops:
            self._drop(data)
            return
        start = b""
        if self._is_at_rest and self._current is None and not self._is_last:
            start = data[: data.find(b"\r\n\r\n") + 4]
            if self._begin_known(start, data):
                return
        self._parse(data)
        call = self._current
        if isinstance(call, HttpPredictCall):
            if start:
                self._learn(start, call, len(data) - len(start))
            call.go()
        elif call is None and self._waiting:
            self._go_on()
        self._start = start

    def eof_received(self) -> None:
        """The client has closed its side: nobody waits for an answer."""

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self.is_answer_paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Most of what waited has gone out."""
        self.is_answer_paused = False
        if self._tells_when_drained:
            self._tells_when_drained = False
            self.transport.set_write_buffer_limits(HIGH_WATER)
        super().resume_writing()
        if isinstance(self._current, HttpPredictCall):
            self._current.answer_drained()
        elif self._current is None:
            self._go_on()

    # --- what comes is parsed ---------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        if not self._in_head:
            self._since = self._context.now
        if self._is_at_rest:
            self._fed = 0
        self._fed += len(data)
        self._overhead += len(data)
        self._feed(data)
        if self._overhead < 0:  # a body came with its head, which was not counted
            self._overhead = 0
        elif self._overhead > self._context.limits.head + _CHUNK_OVERHEAD * self._chunk_count:
            self._refuse_to_read(HeadTooLarge(self._context.limits.head))

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._read_without_upgrade(data[offer.args[0] :])
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # a fault of ours, not of the client's
        except httptools.HttpParserError as error:
            self._refuse_to_read(not_http(str(error)))

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 when a client offers an upgrade: the request is read anew without it.

        RFC 9110 lets a server ignore `Upgrade`; llhttp stops there. Java's HttpClient offers h2c
        with every first request.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse_to_read(BadRequest("CONNECT is not supported"))
            return
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
        head = b"".join(b"%b: %b\r\n" % pair for pair in without_upgrade(self.headers))
        self.parser = httptools.HttpRequestParser(self)
        self._feed(line + head + b"\r\n" + rest)

    # --- heads that are known ---------------------------------------------------------------------

    def _begin_known(self, start: bytes, data: bytes) -> bool:
        """Begin a call whose head needs no parsing, and whose body is here, and no more."""
        body, pattern = len(data) - len(start), self._pattern
        known, lines, identity = self._context.heads.get(start), b"", b""
        if known is not None:
            if known.head.length != body:
                return False
            headers = known.headers
        else:
            if pattern is None or pattern.known.head.length != body:
                return False
            found = pattern.read(start)
            if found is None:
                return False
            known, (headers, lines, identity) = pattern.known, found
        self._since = self._context.now
        call = self._current = HttpPredictCall(
            self, self._context, known.asked, headers, known.head
        )
        if lines:
            call.lines = lines
            call.request_id = identity
        call.whole(data[len(start) :])
        return True

    def _learn(self, start: bytes, call: HttpPredictCall, body: int) -> None:
        """Remember a head that has come twice in a row, or what it has in common with the last."""
        head = call.head
        is_usual = call.keeps_alive and not head.inflates and not head.expects_continue
        if not is_usual or not self._is_at_rest or head.length != body or not self._start:
            return
        known = KnownHead(call.asked, call.headers, head)
        if start == self._start:
            self._context.remember(start, known)
        elif self._guesses:
            self._guesses -= 1
            pattern = pattern_of(self._start, start, known)
            if pattern is not None:
                self._pattern = self._context.shared(pattern)

    # --- what the parser calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A head begins."""
        self.url = b""
        self.headers = []
        self._in_head = True
        self._is_at_rest = False
        self._chunk_count = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what follows a chunked body is read over."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Decide which way the request goes, and whether it has to wait."""
        parser = self.parser
        if self._is_last or parser.should_upgrade():
            return
        self._in_head = False
        self._overhead = 0
        version = parser.get_http_version()
        keeps_alive = version == "1.1" and parser.should_keep_alive()
        self._is_last = not keeps_alive
        try:
            self._check_head(version)
            asked = self._context.predict_call(parser.get_method(), self.url)
            if asked is None:
                self._to_application(version, keeps_alive=keeps_alive)
                return
            head = infer_head(self.headers, is_flat=asked.verb is not Verb.INFER)
            if head.length is not None and head.length > self._context.limits.body:
                raise BodyTooLarge(self._context.limits.body)
        except ServegateError as error:
            self._queue_refusal(error, self.headers)
            return
        except httptools.HttpParserInvalidURLError:
            self._queue_refusal(BadRequest("the request target is not a path"), self.headers)
            return
        call = HttpPredictCall(self, self._context, asked, self.headers, head)
        if not keeps_alive:
            call.keeps_alive = False
            call.takes_chunks = version == "1.1"
        self._reading = call
        self._queue(call)

    def _check_head(self, version: str) -> None:
        limit = self._context.limits.head
        if version not in ("1.1", "1.0"):
            raise BadRequest(f"HTTP/{version} is not supported", try_this="use HTTP/1.1")
        if self._fed > limit:  # most of it may be a body: count
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > limit:
                raise HeadTooLarge(limit)
        host = host_of(self.headers, version)
        if self._context.is_local and not self._context.gateway.needs_key:
            check_local(host)

    def _to_application(self, version: str, *, keeps_alive: bool) -> None:
        expects = False
        for name, value in self.headers:
            if name == b"transfer-encoding":
                check_coding(value)
            elif name == b"expect":
                check_expectation(value)
                expects = True
        if expects:  # nobody knows whether the body comes when it was not asked for
            self._is_last, keeps_alive = True, False
        named = self._context.request_id
        cycle = cycle_of(self, version, named, keeps_alive=keeps_alive, expects=expects)
        self._reading = self.cycle = cycle
        self._queue(cycle)

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._overhead -= len(body)
        reading = self._reading
        if isinstance(reading, HttpPredictCall):
            reading.body(body)
        elif reading is not None:
            super().on_body(body)

    def on_chunk_header(self) -> None:
        """One more piece of a chunked body, or its end."""
        self._chunk_count += 1
        limit = self._context.limits.chunks
        if self._chunk_count > limit + 1:
            error = BadRequest(
                f"the body has more than {limit} chunks", try_this="use larger chunks"
            )
            self._refuse_to_read(error)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._is_at_rest = True
        self._overhead = 0
        reading, self._reading = self._reading, None
        if isinstance(reading, HttpPredictCall):
            reading.end()
        elif reading is not None:
            super().on_message_complete()

    # --- what cannot be read ----------------------------------------------------------------------

    def _refuse_to_read(self, error: ServegateError) -> None:
        """What was sent cannot be read on: say so after the earlier answers, and hang up."""
        reading, self._reading = self._reading, None
        if isinstance(reading, HttpPredictCall) and not reading.is_over:
            reading.give_up(error)
        elif isinstance(reading, RequestResponseCycle) and reading not in self._waiting:
            self._is_last = True  # the application has it: its answer is the only one
            if reading.response_complete:
                self._finish(is_complete=False)
            else:
                reading.keep_alive = False
        elif reading is not None and self._waiting:
            self._waiting[-1] = RefusedRequest(error, self._context.request_id(self.headers))
            self._is_last = True
        elif not self._is_last:
            self._queue_refusal(error)

    def _queue_refusal(
        self, error: ServegateError, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        self._is_last = True
        self._queue(RefusedRequest(error, self._context.request_id(headers)))

    # --- what a predict call uses -----------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The client's address, as the log writes it; empty for a socket that has none."""
        return peer_of(self.client)

    @property
    def is_request_paused(self) -> bool:
        """Whether nothing is read from the client now, because of us."""
        return bool(self.flow.read_paused)

    def fileno(self) -> int:
        """The socket's descriptor, for splicing."""
        descriptor: int = self.transport.get_extra_info("socket").fileno()
        return descriptor

    def write(self, *pieces: bytes) -> None:
        """Write a part of an answer; large pieces are not copied."""
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)

    def pause_request(self) -> None:
        """Read no more of the request until `resume_request`."""
        self.flow.pause_reading()

    def resume_request(self) -> None:
        """Read on, unless requests wait in the queue."""
        if not self._waiting and not self.transport.is_closing():
            self.flow.resume_reading()

    def body_was_moved(self) -> None:
        """The rest of the body went past the parser, by splicing: the next request starts anew."""
        self.parser = httptools.HttpRequestParser(self)
        self._is_at_rest = True
        self._reading = None
        self._since = self._context.now
        self.resume_request()

    def tell_when_drained(self) -> None:
        """Call the call's `answer_drained` once nothing waits to be written any more."""
        if self.transport.get_write_buffer_size():
            self._tells_when_drained = True
            self.transport.set_write_buffer_limits(0)
        elif isinstance(self._current, HttpPredictCall):
            self._current.answer_drained()

    def answered(self, call: HttpPredictCall) -> None:
        """The answer is written: the next in the queue begins."""
        if call.keeps_alive:
            self._advance()
        else:
            self._finish(is_complete=call.is_complete)

    def refuse(self, call: HttpPredictCall, error: ServegateError) -> None:
        """Answer with an error of ours; a request that is not complete is read no further."""
        refused = RefusedRequest(error, call.identity(), call.asked.verb)
        if self._current is not call:  # earlier answers come first; what follows it cannot be read
            self._waiting[-1] = refused
            self._is_last = True
            return
        keeps_alive = call.keeps_alive and call.is_complete
        self.transport.write(refused.written(keeps_alive=keeps_alive))
        if keeps_alive:
            self._advance()
        else:
            self._finish(is_complete=call.is_complete)

    def abort(self) -> None:
        """Break off: the client sees that its answer is not complete."""
        self.transport.abort()

    # --- the sweeper and the server call ----------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look at the clock: how long a call, a client that has been refused, or nobody takes."""
        limits, quiet = self._context.limits, now - self._since
        if self.flow.read_paused and self._has_left():
            self.transport.abort()
        elif self.transport.is_closing():
            if quiet > limits.idle:  # the end of the last answer is not taken
                self.transport.abort()
        elif self._drops:
            if quiet > (limits.idle if self.transport.get_write_buffer_size() else _LINGER):
                self.transport.abort()
        elif isinstance(self._current, HttpPredictCall):
            self._current.tick(now)
        elif self._current is None:
            self._wait_for_request(quiet)

    def _wait_for_request(self, quiet: float) -> None:
        """No request has been read for this many seconds."""
        if self._in_head:
            if quiet > self._context.limits.head_time:
                self._refuse_to_read(TooSlow("its head did not come in time", quiet))
                self._go_on()
        elif quiet > self._context.limits.idle:
            self._since = self._context.now
            self.transport.close()

    def shutdown(self) -> None:
        """The server stops: this connection closes after the calls that are on it."""
        if self._current is None:
            self.transport.close()
            return
        self._is_last = True
        last = self._waiting[-1] if self._waiting else self._current
        if isinstance(last, HttpPredictCall):
            last.keeps_alive = False
        elif isinstance(last, RequestResponseCycle):
            last.keep_alive = False

    def on_response_complete(self) -> None:
        """The application has answered."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._advance()

    def _has_left(self) -> bool:
        """Whether the client has gone away; the event loop does not see it while it does not read.

        The first byte of Linux' `TCP_INFO` is the connection's state.
        """
        peer = self.transport.get_extra_info("socket")
        if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        state: int = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state != _ESTABLISHED

    # --- the queue --------------------------------------------------------------------------------

    def _queue(self, one: QueuedRequest) -> None:
        is_next = self._current is None and not self._waiting and not self.is_answer_paused
        if is_next and isinstance(one, HttpPredictCall):
            self._current = one
            return
        self._waiting.append(one)
        if not is_next:
            self.flow.pause_reading()

    def _begin(self, one: QueuedRequest) -> None:
        self._current = one
        if isinstance(one, RequestResponseCycle):
            self._start_asgi_task(one, self.app)
        elif isinstance(one, RefusedRequest):
            self.transport.write(one.written(keeps_alive=False))
            self._finish(is_complete=False)

    def _advance(self) -> None:
        """The answer is complete: begin with the next in the queue, or wait for a request."""
        self._current = None
        self._since = self._context.now
        if self._waiting or self.is_answer_paused or self.flow.read_paused:
            self._go_on()

    def _go_on(self) -> None:
        """Begin with the queue until one has to wait; a loop, because there may be thousands."""
        if self._is_going_on:
            return
        self._is_going_on = True
        while self._waiting and self._current is None and not self.is_answer_paused:
            one = self._waiting.popleft()
            self.resume_request()  # before it begins: it may pause it for its own sake
            self._begin(one)
            if isinstance(one, HttpPredictCall):
                one.go()
        self._is_going_on = False
        if self._current is None:
            if self.is_answer_paused:
                self.flow.pause_reading()
            else:
                self.resume_request()

    def _forget_all(self) -> None:
        """No answer can be given any more."""
        waiting = [self._current, *self._waiting]
        self._current = None
        self._waiting.clear()
        for one in waiting:
            if isinstance(one, HttpPredictCall):
                faults.contained(one, one.lost)

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, *, is_complete: bool) -> None:
        """Close after the last answer, gently when the client may still be sending."""
        self._is_last = True
        self._since = self._context.now
        self._forget_all()
        if self.transport.is_closing():
            return
        if is_complete:
            self.transport.close()
            return
        self._drops = _LINGERING
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # with TLS there is no half of a connection
            self.transport.write_eof()

    def _drop(self, data: bytes) -> None:
        self._drops -= len(data)
        if self._drops <= 0:
            self._drops = 1
            self.transport.abort()
