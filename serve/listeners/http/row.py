"""The answering half of a client's connection: answers go out in the order of the requests.

Requests that a client sends before the answer to an earlier one wait in a row, and no more is read
meanwhile; nor while the client does not take its answers. One has its turn:

    queued ──▶ turn ──▶ answered ──▶ the next one's turn … until one is the last ──▶ `_finish`

Closing a socket with unread bytes in it resets the connection, and the reset can overtake the
answer. So the end is gentle: only our side is closed at first, and what still comes is dropped.
"""

import asyncio
import socket
from collections import deque
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from serve.core import faults
from serve.core.errors import ServegateError
from serve.listeners.http.asking import peer_of
from serve.listeners.http.desk import Answered, Desk
from serve.listeners.http.exchange import Exchange
from serve.listeners.http.refusal import Refused
from serve.triton.http_connection import HIGH_WATER

_LINGER = 2.0  # seconds in which what a refused client still sends is read and dropped
_LINGERING = 16 << 20  # bytes of it
_ESTABLISHED = 1  # of the kernel's `tcp_states.h`


Waiting = Exchange | RequestResponseCycle | Refused


class Row(HttpToolsProtocol):
    """A client's connection, without the reading of requests."""

    def __init__(
        self,
        desk: Desk,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.is_answer_paused = False
        self.is_plain = True
        self._desk = desk
        self._turn: Waiting | None = None  # who answers now
        self._row: deque[Waiting] = deque()
        self._is_going_on = False
        self._since = desk.now  # since when nothing happens, or a head is owed
        self._is_last = False  # no request may follow on this connection
        self._drops = 0  # bytes that may still be dropped; 0 while requests are read
        self._tells_when_drained = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.client} {self._turn!r} waiting={len(self._row)}>"

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open; beyond the limit it is closed at once."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._desk.clients.add(self)
        self.is_plain = self.scheme == "http"
        self.transport.set_write_buffer_limits(HIGH_WATER)
        if len(self._desk.clients) > self._desk.limits.connections:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it every call on it."""
        self._desk.clients.discard(self)
        self._is_last = True
        self._forget_all()
        super().connection_lost(exc)

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
        if isinstance(self._turn, Exchange):
            self._turn.answer_drained()
        elif self._turn is None:
            self._go_on()

    # --- what an exchange calls -------------------------------------------------------------------

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
        """Read on, unless requests wait in a row."""
        if not self._row and not self.transport.is_closing():
            self.flow.resume_reading()

    def body_was_moved(self) -> None:
        """The rest of the body went past the parser, by splicing."""
        raise NotImplementedError

    def tell_when_drained(self) -> None:
        """Call the exchange's `answer_drained` once nothing waits to be written any more."""
        if self.transport.get_write_buffer_size():
            self._tells_when_drained = True
            self.transport.set_write_buffer_limits(0)
        elif isinstance(self._turn, Exchange):
            self._turn.answer_drained()

    def answered(self, call: Answered) -> None:
        """The answer is written: whoever waits is next."""
        if call.keeps_alive:
            self._advance()
        else:
            self._finish(is_complete=call.is_complete)

    def refuse(self, call: Answered, error: ServegateError) -> None:
        """Answer with an error of ours; a request that is not complete is read no further."""
        refused = Refused(error, call.identity(), call.asked.verb)
        if self._turn is not call:  # earlier answers come first; what follows it cannot be read
            self._row[-1] = refused
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
        limits, quiet = self._desk.limits, now - self._since
        if self.flow.read_paused and self._has_left():
            self.transport.abort()
        elif self.transport.is_closing():
            if quiet > limits.idle:  # the end of the last answer is not taken
                self.transport.abort()
        elif self._drops:
            if quiet > (limits.idle if self.transport.get_write_buffer_size() else _LINGER):
                self.transport.abort()
        elif isinstance(self._turn, Exchange):
            self._turn.tick(now)
        elif self._turn is None:
            self._wait_for_request(quiet)

    def shutdown(self) -> None:
        """The server stops: this connection closes after the calls that are on it."""
        if self._turn is None:
            self.transport.close()
            return
        self._is_last = True
        last = self._row[-1] if self._row else self._turn
        if isinstance(last, Exchange):
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

    # --- the row ----------------------------------------------------------------------------------

    def _wait_for_request(self, quiet: float) -> None:
        """Nobody has the turn for this many seconds."""
        if quiet > self._desk.limits.idle:
            self._since = self._desk.now
            self.transport.close()

    def _queue(self, one: Waiting) -> None:
        is_next = self._turn is None and not self._row and not self.is_answer_paused
        if is_next and isinstance(one, Exchange):
            self._turn = one
            return
        self._row.append(one)
        if not is_next:
            self.flow.pause_reading()

    def _begin(self, one: Waiting) -> None:
        self._turn = one
        if isinstance(one, RequestResponseCycle):
            self._start_asgi_task(one, self.app)
        elif isinstance(one, Refused):
            self.transport.write(one.written(keeps_alive=False))
            self._finish(is_complete=False)

    def _advance(self) -> None:
        """The turn is over: begin with the next in the row, or wait for a request."""
        self._turn = None
        self._since = self._desk.now
        if self._row or self.is_answer_paused or self.flow.read_paused:
            self._go_on()

    def _go_on(self) -> None:
        """Begin with those in the row until one has to wait; a loop, for there may be thousands."""
        if self._is_going_on:
            return
        self._is_going_on = True
        while self._row and self._turn is None and not self.is_answer_paused:
            one = self._row.popleft()
            self.resume_request()  # before it begins: it may pause it for its own sake
            self._begin(one)
            if isinstance(one, Exchange):
                one.go()
        self._is_going_on = False
        if self._turn is None:
            if self.is_answer_paused:
                self.flow.pause_reading()
            else:
                self.resume_request()

    def _forget_all(self) -> None:
        """No answer can be given any more."""
        waiting = [self._turn, *self._row]
        self._turn = None
        self._row.clear()
        for one in waiting:
            if isinstance(one, Exchange):
                faults.contained(one, one.lost)

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, *, is_complete: bool) -> None:
        """Close after the last answer, gently when the client may still be sending."""
        self._is_last = True
        self._since = self._desk.now
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
