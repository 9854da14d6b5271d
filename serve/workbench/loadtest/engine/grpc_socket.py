"""An HTTP/2 link on a socket that gevent's loop watches: callbacks, and no greenlet at all.

    connecting ──▶ (shaking hands) ──▶ open ──▶ closed
        │                  │                       ▲
        └──────────────────┴───────────────────────┘

What the callbacks of one read write goes out when all of them are over. What is written at other
times goes out behind the callbacks of the loop's turn, so that calls that start together leave
together. A socket is watched for writing only while bytes wait.
"""

from __future__ import annotations

import _socket
import errno
import ssl
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from serve.wire import http2
from serve.wire.http2_flow import FlowBoard
from serve.wire.http2_link import Link
from serve.workbench.loadtest.engine.http_shared import Shared
from serve.workbench.loadtest.engine.http_tls import TlsLink

_READ, _WRITE = 1, 2  # libev's
_PIECE = 65536  # bytes of one read
_FRAME = 1 << 20  # bytes of the largest frame that the server may send
_HEAD = 1 << 16  # bytes of the largest header block
_CONTINUATIONS = 16


class Turn(FlowBoard):
    """Flushes the links of one sender. `is_inside`: a read is being handled, which flushes."""

    __slots__ = ("_is_due", "_loop", "is_inside")

    def __init__(self, loop: Any) -> None:
        super().__init__()
        self._loop = loop
        self._is_due = False
        self.is_inside = False

    def flush_soon(self) -> None:
        """Write what has been collected, at the end of the present read or turn."""
        if not self.is_inside and not self._is_due:
            self._is_due = True
            self._loop.run_callback(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        self.flush()


class SocketLink(Link):
    """A client's connection, to the first of the addresses that can be reached.

    `flushed_id`: no byte of a stream above this one has been written. `read_at`: when the last
    bytes came, by the sender's clock.
    """

    __slots__ = (
        "_others",
        "_reader",
        "_recv",
        "_send",
        "_socket",
        "_tls",
        "_unsent",
        "_writer",
        "flushed_id",
        "is_closed",
        "read_at",
        "shared",
        "turn",
    )

    def __init__(self, shared: Shared, turn: Turn) -> None:
        super().__init__(turn, frame=_FRAME, head=_HEAD, continuations=_CONTINUATIONS)
        self.shared = shared
        self.turn = turn
        self.last_id = self.flushed_id = -1
        self.is_closed = False
        self.read_at = 0.0
        self._others = shared.addresses
        self._socket: _socket.socket | None = None
        self._reader: Any = None
        self._writer: Any = None
        self._tls: TlsLink | None = None
        self._unsent: memoryview | bytes = b""
        self._connect()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"streams={len(self.streams)}"
        return f"<{type(self).__name__} {state}>"

    def on_fault(self, error: Exception) -> None:
        """See `Outflow`; a load test with a fault of our own has no result."""
        raise error

    @abstractmethod
    def on_closed(self) -> None:
        """It carries nothing any more; its streams are still in `streams`."""

    def abort(self) -> None:
        """Close at once. May be done twice."""
        if self.is_closed:
            return
        self.is_closed = True
        self._drop_socket()
        self.on_closed()
        for stream in tuple(self.streams.values()):
            self.forget(stream)
        self.out, self.out_size, self._unsent = [], 0, b""

    def flush(self) -> None:
        """Write what has been collected, or as much as there is room for."""
        if self._unsent:
            return  # it follows when that has gone
        out, self.out, self.out_size = self.out, [], 0
        if out and not self.is_closed:
            self.flushed_id = self.last_id
            self._write(out[0] if len(out) == 1 else b"".join(out))

    # --- connecting -------------------------------------------------------------------------------

    def _connect(self) -> None:
        (family, where), *others = self._others
        self._others = tuple(others)
        loop = self.shared.loop
        try:
            sock = _socket.socket(family, _socket.SOCK_STREAM)
        except OSError:  # out of file descriptors, most likely
            loop.run_callback(self.abort)
            return
        sock.setblocking(False)
        self._socket = sock
        self._recv: Callable[[int], bytes] = sock.recv
        self._send: Callable[[bytes | memoryview], int] = sock.send
        self._reader = loop.io(sock.fileno(), _READ)
        self._writer = loop.io(sock.fileno(), _WRITE)
        if sock.connect_ex(where) in (0, errno.EINPROGRESS):
            self._writer.start(self._connected)
        else:
            loop.run_callback(self._not_connected)

    def _connected(self) -> None:
        """The socket is writable for the first time, or has failed."""
        sock, shared = self._socket, self.shared
        assert sock is not None
        self._writer.stop()
        if sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR):
            self._not_connected()
            return
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        shared.prefer(len(self._others))
        if shared.tls is None:
            self._established()
            return
        self._tls = TlsLink(sock, shared.tls, shared.host)
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
            self.abort()
            return
        self._writer.stop()
        if is_done and self._tls.application != "h2":
            self.abort()
        elif is_done:
            self._reader.stop()
            self._established()

    def _established(self) -> None:
        self._reader.start(self._readable)
        self.send(http2.PREFACE + self.opening({http2.ENABLE_PUSH: 0}))
        self.turn.flush()

    def _not_connected(self) -> None:
        if self.is_closed:
            return
        if not self._others:
            self.abort()
            return
        self._drop_socket()
        self._connect()

    def _drop_socket(self) -> None:
        if self._socket is not None:
            for watcher in (self._reader, self._writer):
                watcher.stop()
                watcher.close()
            self._socket.close()
            self._socket = None

    # --- writing ----------------------------------------------------------------------------------

    def _write(self, data: memoryview | bytes) -> None:
        """An error is left to the reader: answers may have come before it."""
        send = self._send
        try:
            while data:
                sent = send(data)
                data = memoryview(data)[sent:] if sent < len(data) else b""
        except BlockingIOError:
            self._unsent = data
            self.is_choked = True
            self._writer.start(self._writable)
        except ssl.SSLError:
            self.shared.loop.run_callback(self.abort)
        except OSError:
            pass

    def _writable(self) -> None:
        self._writer.stop()
        data, self._unsent = self._unsent, b""
        self.is_choked = False
        self._write(data)
        if not self._unsent:
            self.pump()
            self.flush()

    # --- reading ----------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.read_at = self.shared.clock()
        turn = self.turn
        turn.is_inside = True
        try:
            if data:
                self.receive(data)
            else:
                self.abort()
        except Exception:  # whatever a server sends, it is a connection's end and not the loop's
            self.abort()
        finally:
            turn.is_inside = False
        turn.flush()
