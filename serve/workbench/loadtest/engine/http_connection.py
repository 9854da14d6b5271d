"""One HTTP/1.1 connection of a sender, driven by gevent's loop: callbacks, and no greenlet at all.

    connecting ──▶ (shaking hands) ──▶ busy ──the answer is whole──▶ idle ──begin──▶ busy
        │                  │            │                              │
        └──────────────────┴────────────┴──────▶ closed ◀──────────────┘

A socket is watched for reading from its connection to its end, also while it is idle: nothing has
to be told to the kernel per call, and a server that closes an idle connection is seen at once. It
is watched for writing only while bytes wait.

A server may close an idle connection while a call is on its way to it. A call that was written to
a used connection, and got an end in order before any byte of an answer, is sent once again on a
fresh one (RFC 9112 9.3.1 lets clients do so); it stays the same call.
"""

from __future__ import annotations

import _socket
import errno
from collections.abc import Callable

from serve.wire.http_head import BadHead
from serve.workbench.loadtest.engine.http_answers import HEAD_END, Head, HttpResponse
from serve.workbench.loadtest.engine.http_shared import Address, HttpLoadCall, Shared
from serve.workbench.loadtest.engine.http_tls import TlsLink
from serve.workbench.loadtest.engine.senders import Done
from serve.workbench.loadtest.plan import Payload
from serve.workbench.loadtest.record import BROKEN, MALFORMED, NOT_CONNECTED, RIGHT, TIMED_OUT

_READ, _WRITE = 1, 2  # libev's
_PIECE = 65536  # bytes of one read


class LoadHttpConnection:
    """Opened for a call; `begin` starts the next one. `deadline` is that of the call under way."""

    __slots__ = (
        "_answer",
        "_done",
        "_is_used",
        "_known",
        "_others",
        "_payload",
        "_reader",
        "_recv",
        "_request",
        "_send",
        "_shared",
        "_socket",
        "_tls",
        "_unsent",
        "_writer",
        "deadline",
    )

    def __init__(self, shared: Shared, call: HttpLoadCall, addresses: tuple[Address, ...]) -> None:
        """Connect to the first of `addresses`, or to the next. `OSError`: no socket can be had."""
        (family, where), *others = addresses
        self._socket = sock = _socket.socket(family, _socket.SOCK_STREAM)
        sock.setblocking(False)
        self._recv: Callable[[int], bytes] = sock.recv
        self._send: Callable[[bytes | memoryview], int] = sock.send
        self._tls: TlsLink | None = None
        self._shared = shared
        self._known = shared.heads.known
        self._others = tuple(others)
        self._request, self._payload, self.deadline = call.request, call.payload, call.deadline
        self._done: Done | None = call.done
        self._unsent: memoryview | bytes = memoryview(call.request)
        self._answer: HttpResponse | None = None
        self._is_used = False
        self._reader = shared.loop.io(sock.fileno(), _READ)
        self._writer = shared.loop.io(sock.fileno(), _WRITE)
        shared.open.add(self)
        if sock.connect_ex(where) in (0, errno.EINPROGRESS):
            self._writer.start(self._connected)
        else:
            shared.loop.run_callback(self._not_connected)

    def __repr__(self) -> str:
        is_idle = self in self._shared.idle
        return f"<LoadHttpConnection {'busy' if self.is_busy else 'idle' if is_idle else 'closed'}>"

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._done is not None

    def begin(self, request: bytes, payload: Payload, done: Done, deadline: float) -> bool:
        """Start the next call. False: the connection is broken, and nothing has left."""
        try:
            sent = self._send(request)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        self._request = request
        self._payload = payload
        self._done = done
        self.deadline = deadline
        if sent != len(request):
            self._unsent = memoryview(request)[sent:]
            self._writer.start(self._write)
        return True

    def expire(self, now: float) -> None:
        """The call is over its time."""
        self._fail(TIMED_OUT, now)

    def close(self) -> None:
        """Close at once; nobody is told. May be done twice."""
        if self not in self._shared.open:
            return
        self._shared.open.remove(self)
        if self._done is None and self in self._shared.idle:
            self._shared.idle.remove(self)
        self._done = None
        for watcher in (self._reader, self._writer):
            watcher.stop()
            watcher.close()
        self._socket.close()

    # --- connecting -------------------------------------------------------------------------------

    def _connected(self) -> None:
        """The socket is writable for the first time, or has failed."""
        shared = self._shared
        self._writer.stop()
        if self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR):
            self._not_connected()
            return
        self._socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        shared.prefer(len(self._others))
        if shared.tls is None:
            self._established()
            return
        self._tls = TlsLink(self._socket, shared.tls, shared.host)
        self._recv, self._send = self._tls.recv, self._tls.send
        self._reader.start(self._shake)
        self._shake()

    def _shake(self) -> None:
        assert self._tls is not None
        try:
            is_done = self._tls.shake()
        except BlockingIOError:
            self._writer.start(self._shake)
            return
        except OSError:
            self._fail(NOT_CONNECTED, self._shared.clock())
            return
        self._writer.stop()
        if is_done:
            self._reader.stop()
            self._established()

    def _established(self) -> None:
        self._reader.start(self._readable)
        self._write()

    def _not_connected(self) -> None:
        if self._done is not None and self._others:
            self._again(self._others)
        else:
            self._fail(NOT_CONNECTED, self._shared.clock())

    # --- writing ----------------------------------------------------------------------------------

    def _write(self) -> None:
        """Send what waits. An error is left to the reader: an answer may have come before it."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._send(self._unsent) :]
        except BlockingIOError:
            self._writer.start(self._write)
            return
        except OSError:
            pass
        self._writer.stop()

    # --- reading ----------------------------------------------------------------------------------

    def _readable(self) -> None:
        """The way of nearly all answers: whole, in one piece, with a head seen before."""
        try:
            data = self._recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = None
        shared = self._shared
        now = shared.clock()
        done = self._done
        if not data or done is None or self._answer is not None or self._unsent:
            self._unusual(data, now)
            return
        end = data.find(HEAD_END)
        head = self._known.get(data[:end]) or self._head_of(data, end)
        end += 4
        if head is None or head.plain != len(data) - end:
            self._unusual(data, now)
            return
        payload = self._payload
        outcome = head.outcome
        if payload.expected is not None and outcome == RIGHT:
            outcome = self._judged(data[end:], head)
        decision = head.decision
        if not decision and shared.names_version:
            decision = shared.heads.version(data, end)
        self._done = None
        self._is_used = True
        shared.idle.append(self)
        shared.tell(done, outcome, decision, now)

    def _head_of(self, data: bytes, end: int) -> Head | None:
        if end < 0:
            return None
        try:
            return self._shared.heads.read(data[:end])
        except BadHead:
            return None

    def _unusual(self, data: bytes | None, now: float) -> None:
        """A piece of an answer, an end (empty), a reset (None), or what nobody has asked for."""
        if self._done is None:
            self.close()
        elif not data:
            self._ended(now, in_order=data is not None)
        else:
            answer = self._answer
            if answer is None:
                answer = self._answer = HttpResponse(self._shared.heads)
            try:
                is_whole = answer.take(data)
            except Exception:  # whatever a server sends, it is a call's end and not the loop's
                self._fail(MALFORMED, now)
                return
            if is_whole:
                self._finish(answer, now)

    def _ended(self, now: float, *, in_order: bool) -> None:
        answer = self._answer
        if in_order and answer is not None and answer.ends_with_connection():
            self._finish(answer, now)
        elif in_order and answer is None and self._is_used:
            self._again(self._shared.addresses)
        else:
            self._fail(BROKEN, now)

    def _finish(self, answer: HttpResponse, now: float) -> None:
        head, body, done = answer.head, answer.body, self._done
        assert head is not None and done is not None
        outcome = head.outcome
        if outcome == RIGHT and self._payload.expected is not None:
            outcome = self._judged(body, head)
        decision = head.decision
        if not decision and self._shared.names_version:
            decision = self._shared.heads.version(body, 0)
        if answer.is_reusable and not self._unsent:
            self._done = self._answer = None
            self._is_used = True
            self._shared.idle.append(self)
        else:
            self.close()
        self._shared.tell(done, outcome, decision, now)

    def _judged(self, body: bytes, head: Head) -> str:
        try:
            return self._shared.check(self._payload, body, head.head_length)
        except Exception:  # a checker's own fault is a call's end, not the loop's
            return MALFORMED

    # --- ends -------------------------------------------------------------------------------------

    def _again(self, addresses: tuple[Address, ...]) -> None:
        """Make the same call on a fresh connection."""
        done = self._done
        assert done is not None
        call = HttpLoadCall(self._request, self._payload, done, self.deadline)
        self.close()
        try:
            LoadHttpConnection(self._shared, call, addresses)
        except OSError:
            self._shared.tell(done, NOT_CONNECTED, "", self._shared.clock())

    def _fail(self, outcome: str, now: float) -> None:
        done = self._done
        head = self._answer.head if self._answer is not None else None
        self.close()
        if done is not None:
            self._shared.tell(done, outcome, head.decision if head is not None else "", now)
