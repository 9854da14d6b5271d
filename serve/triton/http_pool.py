"""A pool of kept-open HTTP/1.1 connections to the Tritons, for one call at a time on each.

Theory. A call takes the connection that was given back last (the warmest one), or opens a new one.
It writes head and body, and waits for one complete answer. What can go wrong falls into two kinds,
and the border between them is the first byte that is written:

    take or open ──────▶ write ──────▶ head ──▶ body ──▶ complete ──▶ given back
         │ refused, too slow │ reset, closed, not HTTP, cut off    │ "Connection: close"
         ▼                   ▼                                     ▼
      NotSent          OutcomeUnknown                            closed

A connection that was found closed before the write is dropped and another one taken. No call has a
timer of its own: one sweep over the busy connections keeps all deadlines, and closes connections
that nobody has used for a while.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from serve.core.calls import Headers, Reply
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica

SWEEP = 0.05  # seconds between two looks at the deadlines of busy connections
IDLE = 60.0  # seconds after which an idle connection is closed
_NO_BODY = frozenset((100, 101, 102, 103, 204, 304))
_JOIN = 16 << 10  # bytes; a body up to this size is written together with its head


class Connection(asyncio.Protocol):
    """One connection. `exchange` sends a request and gives the future of its reply."""

    def __init__(self, name: str) -> None:
        self.deadline: float | None = None
        self.idle_since = 0.0
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._pending: asyncio.Future[Reply] | None = None
        self._begin()

    def __repr__(self) -> str:
        state = "closed" if not self.is_open else "busy" if self._pending else "idle"
        return f"<Connection {self._name} {state}>"

    @property
    def is_open(self) -> bool:
        """Whether a request may still be written."""
        return self._transport is not None and not self._transport.is_closing()

    def exchange(self, head: bytes, body: bytes, deadline: float | None) -> "asyncio.Future[Reply]":
        """Write one request; its reply, or `OutcomeUnknown`, comes with the future."""
        assert self._transport is not None and self._pending is None
        self.deadline = deadline
        self._pending = asyncio.get_running_loop().create_future()
        self._begin()
        if len(body) <= _JOIN:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        return self._pending

    def close(self, error: Exception | None = None) -> None:
        """Close at once; a call that still waits gets the error."""
        if self._pending is not None and not self._pending.done() and error is not None:
            self._pending.set_exception(error)
        self._pending = None
        if self._transport is not None:
            self._transport.abort()

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer; bytes that nobody asked for end the connection."""
        if self._pending is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(str(error) or "the answer is not HTTP")

    def connection_lost(self, error: Exception | None) -> None:
        """The other side has closed; that completes an answer whose end nothing else tells."""
        if self._pending is None:
            return
        if error is None and self._until_close:
            self._complete()
        else:
            self._fail(str(error) if error else "it was closed")

    # --- what the parser calls --------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is complete; without a length and chunks the body ends with the connection."""
        names = {name for name, _ in self._headers}
        told = names & {b"content-length", b"transfer-encoding"}
        self._until_close = not told and self._parser.get_status_code() not in _NO_BODY

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is complete, unless it was an interim one."""
        if self._parser.get_status_code() < 200:
            self._headers.clear()
            self._body.clear()
        else:
            self._complete()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._until_close = False

    def _complete(self) -> None:
        pending, self._pending = self._pending, None
        status = self._parser.get_status_code()
        if self._until_close or not self._parser.should_keep_alive():
            self.close()
        if pending is not None and not pending.done():
            pending.set_result(Reply(status, b"".join(self._body), tuple(self._headers)))

    def _fail(self, why: str) -> None:
        self.close(
            OutcomeUnknown(
                f"the connection to replica {self._name} broke during the call",
                why=why,
                try_this="the call again only if it may be executed twice",
            )
        )


class Pool:
    """The connections to all replicas. An async context manager."""

    def __init__(self, *, connect_timeout: float, clock: Callable[[], float]) -> None:
        self._connect_timeout = connect_timeout
        self._clock = clock
        self._idle: dict[tuple[str, int], list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._sweeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        idle = sum(len(connections) for connections in self._idle.values())
        return f"<Pool busy={len(self._busy)} idle={idle}>"

    async def __aenter__(self) -> "Pool":
        """Begin to sweep."""
        self._sweeping = asyncio.create_task(self._sweep_for_ever())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every connection."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in [*self._busy, *(c for idle in self._idle.values() for c in idle)]:
            connection.close(OutcomeUnknown("the gateway stops"))

    async def send(
        self, replica: Replica, head: bytes, body: bytes, deadline: float | None
    ) -> Reply:
        """One request there and one reply back; `head` ends with its empty line."""
        address = (replica.host, replica.http_port)
        connection = self._take(address) or await self._open(replica, deadline)
        self._busy.add(connection)
        try:
            return await connection.exchange(head, body, deadline)
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
            if connection.is_open:
                connection.idle_since = self._clock()
                self._idle.setdefault(address, []).append(connection)

    def sweep(self) -> None:
        """End the calls whose deadline has passed, and close what was idle for long."""
        now = self._clock()
        for connection in [c for c in self._busy if c.deadline is not None and c.deadline <= now]:
            connection.close(DeadlineExceeded())
        for address, idle in self._idle.items():
            old = [c for c in idle if not c.is_open or now - c.idle_since > IDLE]
            for connection in old:
                connection.close()
            if old:
                self._idle[address] = [c for c in idle if c not in old]

    def _take(self, address: tuple[str, int]) -> Connection | None:
        """The connection that was used last and is still open."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _open(self, replica: Replica, deadline: float | None) -> Connection:
        loop = asyncio.get_running_loop()
        left = self._connect_timeout
        if deadline is not None:
            left = min(left, deadline - self._clock())
            if left <= 0:
                raise DeadlineExceeded
        try:
            async with asyncio.timeout(left):
                _, connection = await loop.create_connection(
                    lambda: Connection(replica.name), replica.host, replica.http_port
                )
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no connection within {left:.3g} s"
            raise NotSent(f"replica {replica.name} cannot be reached", why=why) from error
        return connection

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self.sweep()


def request_head(method: str, replica: Replica, path: str, headers: Headers, length: int) -> bytes:
    """The head of a request: the caller's headers, and the two that every hop writes by itself."""
    lines = [f"{method} {path} HTTP/1.1\r\nHost: {replica.http_url[7:]}\r\n".encode("latin-1")]
    lines += [b"%b: %b\r\n" % header for header in headers]
    if method == "POST":
        lines.append(b"Content-Length: %d\r\n" % length)
    lines.append(b"\r\n")
    return b"".join(lines)
