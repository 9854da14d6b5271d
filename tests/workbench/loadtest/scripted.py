"""An HTTP server that does what a script says: answer, wait, send in pieces, close, reset.

It runs in a thread of its own. Each call takes the next `Act` of the script, whatever connection it
came by; when the script is over, calls get the default answer after the default service time.

    with Scripted(acts=[(answer(status=429),), (CLOSE,)], service=0.01) as server:
        …                                   # calls to server.address
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Self


class Ending(Enum):
    """What an act may do to its connection."""

    CLOSE = auto()  # in order
    RESET = auto()  # the other side sees a reset


CLOSE, RESET = Ending.CLOSE, Ending.RESET
Act = Sequence[bytes | float | Ending]
"""Bytes to write, seconds to wait, or an ending, in order; an empty act never answers."""

BODY = b'{"model_name":"m","model_version":"3","outputs":[]}'


def answer(
    body: bytes = BODY,
    *headers: tuple[str, str],
    status: int = 200,
    chunks: Sequence[bytes] | None = None,
) -> bytes:
    """A whole answer, by its length or in chunks."""
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers)]
    if chunks is None:
        lines.append(f"Content-Length: {len(body)}")
    else:
        lines.append("Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*chunks, b""))
    return "\r\n".join((*lines, "", "")).encode() + body


class Scripted:
    """The server, from `with` to its end. `calls` are the requests as they came, head and body."""

    def __init__(
        self,
        *,
        acts: Sequence[Act] = (),
        service: float = 0.0,
        reply: bytes = b"",
        tls: ssl.SSLContext | None = None,
        eager: bool = False,
    ) -> None:
        """`eager`: it acts when a head has come, and reads no body."""
        self._acts = list(acts)
        self._default: Act = (service, reply or answer())
        self._tls = tls
        self.is_eager = eager
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.links: set[_Link] = set()
        self.calls: list[bytes] = []
        self.connections = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def close_idle(self) -> None:
        """Close every connection, in order, as a server does whose keep-alive time is over."""

        async def close() -> None:
            for link in tuple(self.links):
                link.end(CLOSE)

        self._do(close())

    def next_act(self, request: bytes) -> Act:
        """What the call that has just come gets."""
        self.calls.append(request)
        return self._acts.pop(0) if self._acts else self._default

    def _do(self, work: asyncio._CoroutineLike[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _listen(self) -> None:
        def welcome() -> _Link:
            self.connections += 1
            return _Link(self, self._loop.call_later)

        self._server = await self._loop.create_server(
            welcome, sock=self._listener, ssl=self._tls, backlog=1024
        )

    async def _stop(self) -> None:
        self._server.close()
        for link in tuple(self.links):
            link.end(RESET)


class _Link(asyncio.Protocol):
    def __init__(self, owner: Scripted, later: Callable[..., asyncio.TimerHandle]) -> None:
        self._owner = owner
        self._later = later
        self._came = b""
        self._is_deaf = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.links.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        if len(body) >= length or self._owner.is_eager:
            self._is_deaf = self._owner.is_eager
            request, self._came = self._came, b""
            self._go_on(list(self._owner.next_act(request)))

    def end(self, how: Ending) -> None:
        if how is RESET:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        else:
            self._transport.close()

    def _go_on(self, steps: list[bytes | float | Ending]) -> None:
        while steps:
            step = steps.pop(0)
            if isinstance(step, float):
                self._later(step, self._go_on, steps)
                return
            if isinstance(step, Ending):
                self.end(step)
            else:
                self._transport.write(step)
