"""TLS over a socket that never blocks: the three verbs of a socket, with encryption between them.

Encryption works on memory alone, so that it does not matter whether gevent has replaced what
Python's `ssl` does with sockets. As with OpenSSL, a `send` that raises `BlockingIOError` has taken
the data, and is to be repeated with the same data until it returns.
"""

from __future__ import annotations

import _socket
import ssl

_PIECE = 65536


class TlsLink:
    """One connection's side. Errors are `OSError`s, `ssl.SSLError` among them."""

    __slots__ = ("_came", "_goes", "_left", "_socket", "_taken", "_tls")

    def __init__(self, sock: _socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = sock
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host)
        self._left = b""  # encrypted, and not yet gone
        self._taken = 0

    @property
    def application(self) -> str:
        """The protocol that both sides have agreed on (ALPN), or empty."""
        return self._tls.selected_alpn_protocol() or ""

    def shake(self) -> bool:
        """Go on with the handshake; whether it is done."""
        try:
            self._fetch()
        except BlockingIOError:
            pass
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._flush()
        return True

    def recv(self, most: int) -> bytes:
        """What has come, of any length; empty at the end. `BlockingIOError`: nothing has come."""
        self._fetch()
        parts = []
        try:
            while part := self._tls.read(most):
                parts.append(part)
        except ssl.SSLWantReadError:
            if not parts:
                raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        return b"".join(parts)

    def send(self, data: bytes | memoryview) -> int:
        """How many bytes are gone, at least one; `BlockingIOError`: repeat it when writable."""
        if not self._taken:
            self._taken = self._tls.write(data[:_PIECE])
        self._flush()
        gone, self._taken = self._taken, 0
        return gone

    def _fetch(self) -> None:
        data = self._socket.recv(_PIECE)
        if data:
            self._came.write(data)
        else:
            self._came.write_eof()

    def _flush(self) -> None:
        self._left += self._goes.read()
        while self._left:
            self._left = self._left[self._socket.send(self._left) :]
