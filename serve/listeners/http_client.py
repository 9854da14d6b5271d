"""The reading half of a client's HTTP/1.1 connection: which way its requests go.

uvicorn's protocol class brings the connection's life and the application's side; llhttp is the only
parser of requests. What happens once a head is complete is decided here:

| request                          | goes to                                                  |
|----------------------------------|----------------------------------------------------------|
| `POST /v2/models/…/infer`        | an `Exchange`, without a task, a future or a timer       |
| anything else                    | the ASGI application, as uvicorn would have it           |

What a client may do wrong, and how long it may take, is bounded by `core.limits`. How the answers
go out is told in `http_row`.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from serve.core.errors import BadRequest, BodyTooLarge, HeadTooLarge, ServegateError, TooSlow
from serve.listeners.http_desk import Desk, KnownHead
from serve.listeners.http_exchange import Exchange
from serve.listeners.http_row import Refused, Row
from serve.wire.kserve_http import infer_head

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
            known = self._desk.heads.get(start)
            if known is not None and known.head.length == len(data) - len(start):
                self._begin_known(known, data[len(start) :])
                return
        self._parse(data)
        turn = self._turn
        if isinstance(turn, Exchange):
            if start and start == self._start:
                self._remember(start, turn, len(data) - len(start))
            turn.go()
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
        except httptools.HttpParserError:
            self._refuse_to_read(BadRequest("this is not HTTP/1.1"))

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 when a client offers an upgrade: the request is read anew without it.

        RFC 9110 lets a server ignore `Upgrade`; llhttp stops there. Java's HttpClient offers h2c
        with every first request.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse_to_read(BadRequest("CONNECT is not served"))
            return
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
        head = b"".join(b"%b: %b\r\n" % pair for pair in _without_upgrade(self.headers))
        self.parser = httptools.HttpRequestParser(self)
        self._feed(line + head + b"\r\n" + rest)

    # --- heads that are known ---------------------------------------------------------------------

    def _begin_known(self, known: KnownHead, body: bytes) -> None:
        """Begin a call whose head, byte for byte, llhttp has read before, and whose body is here.

        The same bytes mean the same, so nothing is parsed.
        """
        self._since = self._desk.now
        exchange = Exchange(self, self._desk, known.asked, known.headers, known.head)
        self._turn = exchange
        exchange.whole(body)

    def _remember(self, start: bytes, exchange: Exchange, body: int) -> None:
        """Remember a head that has come twice in a row, with nothing but its body behind it.

        Heads with a trace's identity never do.
        """
        head = exchange.head
        is_usual = exchange.keeps_alive and not head.inflates and not head.expects_continue
        if is_usual and self._is_at_rest and head.length == body:
            self._desk.remember(start, KnownHead(exchange.asked, exchange.headers, head))

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
                self._to_application(version, keeps_alive)
                return
            head = infer_head(self.headers)
            if head.length is not None and head.length > self._desk.limits.body:
                raise BodyTooLarge(self._desk.limits.body)
        except ServegateError as error:
            self._queue_refusal(error)
            return
        except httptools.HttpParserInvalidURLError:
            self._queue_refusal(BadRequest("the request target is no path"))
            return
        exchange = Exchange(self, self._desk, asked, self.headers, head)
        if not keeps_alive:
            exchange.keeps_alive = False
            exchange.takes_chunks = version == "1.1"
        self._reading = exchange
        self._queue(exchange)

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
            error = BadRequest(f"the body has more than {limit} chunks", try_this="larger chunks")
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

    # --- the application --------------------------------------------------------------------------

    def _to_application(self, version: str, keeps_alive: bool) -> None:
        """As uvicorn does it, but for the row, which is ours."""
        headers, url = self.headers, self.url
        parsed = httptools.parse_url(url)
        super().on_message_begin()
        self.headers[:] = headers
        self.url = url
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["raw_path"] = parsed.path or b""
        self.scope["path"] = (parsed.path or b"").decode("latin-1")
        self.scope["query_string"] = parsed.query or b""
        expects = (b"expect", b"100-continue") in [(name, value.lower()) for name, value in headers]
        if expects:  # nobody knows whether the body comes when it was not asked for
            self._is_last = True
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects,
            keep_alive=keeps_alive and not expects,
            on_response=self.on_response_complete,
        )
        self._reading = self.cycle
        self._queue(self.cycle)

    # --- what cannot be read ----------------------------------------------------------------------

    def _check_head(self, version: str) -> None:
        limit = self._desk.limits.head
        if version not in ("1.1", "1.0"):
            raise BadRequest(f"HTTP/{version} is not served", try_this="HTTP/1.1")
        if self._fed > limit:  # most of it may be a body: count
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > limit:
                raise HeadTooLarge(limit)

    def _refuse_to_read(self, error: ServegateError) -> None:
        """What was sent cannot be read on: say so when its turn comes, and hang up."""
        reading, self._reading = self._reading, None
        if isinstance(reading, Exchange) and not reading.is_over:
            reading.give_up(error)
        elif not self._is_last:
            self._queue_refusal(error)

    def _queue_refusal(self, error: ServegateError) -> None:
        self._is_last = True
        self._queue(Refused(error))

    def _wait_for_request(self, quiet: float) -> None:
        """Nobody has the turn for this many seconds."""
        if not self._in_head:
            super()._wait_for_request(quiet)
        elif quiet > self._desk.limits.head_time:
            self._refuse_to_read(TooSlow("its head did not come in time", quiet))


def _without_upgrade(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The headers of a request that offers nothing; what else Connection says stays in force."""
    for name, value in headers:
        if name == b"connection":
            options = [word.strip() for word in value.split(b",")]
            value = b", ".join(word for word in options if word.lower() != b"upgrade")
        if name != b"upgrade":
            yield name, value
