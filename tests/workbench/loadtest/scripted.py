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
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Self


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


class InThread:
    """A server whose event loop runs in a thread, from `with` to its end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._shut())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=30)

    async def _open(self) -> None: ...

    async def _shut(self) -> None: ...


class Scripted(InThread):
    """The server. `calls` are the requests as they came, head and body."""

    def __init__(
        self,
        *,
        acts: Sequence[Act] = (),
        service: float = 0.0,
        tls: ssl.SSLContext | None = None,
        eager: bool = False,
    ) -> None:
        """`eager`: it acts when a head has come, and passes over the body."""
        super().__init__()
        self._acts = list(acts)
        self._default: Act = (service, answer())
        self._tls = tls
        self._is_eager = eager
        self._links: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        self.calls: list[bytes] = []
        self.connections = 0

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _shut(self) -> None:
        self._server.close()
        for task in tuple(self._links):
            assert task is not None
            task.cancel()

    def close_idle(self) -> None:
        """Close every connection, in order, as a server does whose keep-alive time is over."""

        async def close() -> None:
            for writer in self._links.values():
                writer.close()

        self.do(close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._links[asyncio.current_task()] = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                body = b"" if self._is_eager else await reader.readexactly(length)
                self.calls.append(head + body)
                for step in self._acts.pop(0) if self._acts else self._default:
                    await self._act(step, writer)
                while self._is_eager and await reader.read(1 << 16):
                    pass
        writer.close()
        del self._links[asyncio.current_task()]

    async def _act(self, step: bytes | float | Ending, writer: asyncio.StreamWriter) -> None:
        if isinstance(step, bytes):
            writer.write(step)
        elif isinstance(step, float):
            await asyncio.sleep(step)
        elif step is CLOSE:
            writer.close()
        else:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
