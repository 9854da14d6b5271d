"""The reading half of a client's HTTP/1.1 connection: which way its requests go.

uvicorn's protocol class brings the connection's life and the application's side; llhttp is the only
parser of requests. What happens once a head is complete is decided here:

| request                          | goes to                                                  |
|----------------------------------|----------------------------------------------------------|
| `POST /v2/models/…/infer`, and   | an `Exchange`, without a task, a future or a timer       |
| `…/generate`, `…/generate_stream`|                                                          |
| anything else                    | the ASGI application, as uvicorn would have it           |

What a client may do wrong, and how long it may take, is bounded by `core.limits`. How the answers
go out is told in `row`.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from serve.core.calls import Verb
from serve.core.errors import BadRequest, BodyTooLarge, HeadTooLarge, ServegateError, TooSlow
from serve.listeners.http.cycle import cycle_of
from serve.listeners.http.desk import Desk
from serve.listeners.http.exchange import Exchange
from serve.listeners.http.refusal import Refused
from serve.listeners.http.row import Row
from serve.wire.known_heads import KnownHead, Pattern, pattern_of
from serve.wire.kserve_http import (
    check_coding,
    check_expectation,
    infer_head,
    not_http,
    without_upgrade,
)
from serve.wire.origins import check_local, host_of

_GUESSES = 4  # how often a connection's heads are compared to find what varies in them
_CHUNK_OVERHEAD = 32  # bytes; a chunk's length, line ends, and a short extension


class HttpClient(Row):
    """One connection of a client. Made by uvicorn; the listener is put in front by `partial`."""

    def __init__(
        self,
        desk: Desk,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(desk, config, server_state, app_state, _loop)
        self._reading: Exchange | RequestResponseCycle | None = None  # whose body the parser reads
        self._in_head = False
        self._is_at_rest = True  # the parser is between two requests
        self._start = b""  # the head that came last, if its request came in one piece
        self._pattern: Pattern | None = None  # of the heads of this connection
        self._guesses = _GUESSES
        self._fed = 0  # bytes since the last read that began between two requests
        self._overhead = 0  # bytes since the last head that were neither head nor body
        self._chunk_count = 0

    # --- what comes -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and let the call that it began or went on with begin."""
        if self._drops:
            self._drop(data)
            return
        start = b""
        if self._is_at_rest and self._turn is None and not self._is_last:
            start = data[: data.find(b"\r\n\r\n") + 4]
            if self._begin_known(start, data):
                return
        self._parse(data)
        turn = self._turn
        if isinstance(turn, Exchange):
            if start:
                self._learn(start, turn, len(data) - len(start))
            turn.go()
        elif turn is None and self._row:
            self._go_on()
        self._start = start

    def _parse(self, data: bytes) -> None:
        if not self._in_head:
            self._since = self._desk.now
        if self._is_at_rest:
            self._fed = 0
        self._fed += len(data)
        self._overhead += len(data)
        self._feed(data)
        if self._overhead < 0:  # a body came with its head, which was not counted
            self._overhead = 0
        elif self._overhead > self._desk.limits.head + _CHUNK_OVERHEAD * self._chunk_count:
            self._refuse_to_read(HeadTooLarge(self._desk.limits.head))

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
        known, lines, identity = self._desk.heads.get(start), b"", b""
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
        self._since = self._desk.now
        exchange = self._turn = Exchange(self, self._desk, known.asked, headers, known.head)
        if lines:
            exchange.lines = lines
            exchange.request_id = identity
        exchange.whole(data[len(start) :])
        return True

    def _learn(self, start: bytes, exchange: Exchange, body: int) -> None:
        """Remember a head that has come twice in a row, or what it has in common with the last."""
        head = exchange.head
        is_usual = exchange.keeps_alive and not head.inflates and not head.expects_continue
        if not is_usual or not self._is_at_rest or head.length != body or not self._start:
            return
        known = KnownHead(exchange.asked, exchange.headers, head)
        if start == self._start:
            self._desk.remember(start, known)
        elif self._guesses:
            self._guesses -= 1
            pattern = pattern_of(self._start, start, known)
            if pattern is not None:
                self._pattern = self._desk.shared(pattern)

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
            asked = self._desk.predict_call(parser.get_method(), self.url)
            if asked is None:
                self._to_application(version, keeps_alive=keeps_alive)
                return
            head = infer_head(self.headers, is_flat=asked.verb is not Verb.INFER)
            if head.length is not None and head.length > self._desk.limits.body:
                raise BodyTooLarge(self._desk.limits.body)
        except ServegateError as error:
            self._queue_refusal(error, self.headers)
            return
        except httptools.HttpParserInvalidURLError:
            self._queue_refusal(BadRequest("the request target is not a path"), self.headers)
            return
        exchange = Exchange(self, self._desk, asked, self.headers, head)
        if not keeps_alive:
            exchange.keeps_alive = False
            exchange.takes_chunks = version == "1.1"
        self._reading = exchange
        self._queue(exchange)

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
        named = self._desk.request_id
        cycle = cycle_of(self, version, named, keeps_alive=keeps_alive, expects=expects)
        self._reading = self.cycle = cycle
        self._queue(cycle)

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._overhead -= len(body)
        reading = self._reading
        if isinstance(reading, Exchange):
            reading.body(body)
        elif reading is not None:
            super().on_body(body)

    def on_chunk_header(self) -> None:
        """One more piece of a chunked body, or its end."""
        self._chunk_count += 1
        limit = self._desk.limits.chunks
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
        if isinstance(reading, Exchange):
            reading.end()
        elif reading is not None:
            super().on_message_complete()

    def body_was_moved(self) -> None:
        """The rest of the body went past the parser, by splicing: the next request starts anew."""
        self.parser = httptools.HttpRequestParser(self)
        self._is_at_rest = True
        self._reading = None
        self._since = self._desk.now
        self.resume_request()

    # --- what cannot be read ----------------------------------------------------------------------

    def _check_head(self, version: str) -> None:
        limit = self._desk.limits.head
        if version not in ("1.1", "1.0"):
            raise BadRequest(f"HTTP/{version} is not supported", try_this="HTTP/1.1")
        if self._fed > limit:  # most of it may be a body: count
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > limit:
                raise HeadTooLarge(limit)
        host = host_of(self.headers, version)
        if self._desk.is_local and not self._desk.gateway.needs_key:
            check_local(host)

    def _refuse_to_read(self, error: ServegateError) -> None:
        """What was sent cannot be read on: say so when its turn comes, and hang up."""
        reading, self._reading = self._reading, None
        if isinstance(reading, Exchange) and not reading.is_over:
            reading.give_up(error)
        elif isinstance(reading, RequestResponseCycle) and reading not in self._row:
            self._is_last = True  # the application has it: its answer is the only one
            if reading.response_complete:
                self._finish(is_complete=False)
            else:
                reading.keep_alive = False
        elif reading is not None and self._row:
            self._row[-1] = Refused(error, self._desk.request_id(self.headers))
            self._is_last = True
        elif not self._is_last:
            self._queue_refusal(error)

    def _queue_refusal(
        self, error: ServegateError, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        self._is_last = True
        self._queue(Refused(error, self._desk.request_id(headers)))

    def _wait_for_request(self, quiet: float) -> None:
        """Nobody has the turn for this many seconds."""
        if not self._in_head:
            super()._wait_for_request(quiet)
        elif quiet > self._desk.limits.head_time:
            self._refuse_to_read(TooSlow("the request head did not arrive in time", quiet))
            self._go_on()
