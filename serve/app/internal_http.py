"""Asking: requests over HTTP/1.1 between our own processes, on a connection that is kept.

Small on purpose: workers need no more than this to follow the control plane, and every module that
they import costs memory and time at every start.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from urllib.parse import urlsplit

import httptools

INSIDE = "unix:"  # begins the address of a Unix socket
_READ_SIZE = 64 * 1024  # bytes
_UCRED = struct.Struct("3i")  # unix(7): pid, uid, gid
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InternalResponse:
    """What came back, whole."""

    status: int
    body: bytes


class InternalConnection:
    """One connection, opened when first needed and again after it broke. One question at a time.

    `where` is a URL (http or https, its path comes before every target), or a Unix socket: its path
    or `unix:PATH`. `trust` makes the context of each https connection anew. What goes wrong is an
    OSError; patience is the caller's.
    """

    def __init__(
        self,
        where: str | Path,
        *,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        if isinstance(where, str) and where.startswith(INSIDE):
            where = Path(where.removeprefix(INSIDE))
        self._where = where
        self._url = urlsplit("http://localhost" if isinstance(where, Path) else where)
        self._trust = trust
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.listener: int | None = None

    def __repr__(self) -> str:
        return f"<InternalConnection {self._where} {'open' if self._streams else 'closed'}>"

    async def __aenter__(self) -> "InternalConnection":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    async def connect(self) -> None:
        """Open the connection, if it is not open.

        Over a Unix socket the kernel says who listens: `listener` is the process id of it, known
        even if that process hangs.
        """
        if self._streams is None and isinstance(self._where, Path):
            self._streams = await self._connect_inside(self._where)
        elif self._streams is None:
            secure = self._url.scheme == "https"
            port = self._url.port or (443 if secure else 80)
            self._streams = await asyncio.open_connection(
                self._url.hostname, port, ssl=self._trust() if secure else None
            )

    async def get(self, target: str, headers: Mapping[str, str] = _NO_HEADERS) -> InternalResponse:
        """Ask for this path and query, and wait for the whole answer."""
        return await self._ask("GET", target, headers, b"")

    async def post(self, target: str, headers: Mapping[str, str], body: bytes) -> InternalResponse:
        """Send this body there, and wait for the whole answer."""
        return await self._ask("POST", target, {**headers, "content-length": str(len(body))}, body)

    async def put(self, target: str, headers: Mapping[str, str], body: bytes) -> InternalResponse:
        """As `post`, for what is as the body says from then on."""
        return await self._ask("PUT", target, {**headers, "content-length": str(len(body))}, body)

    async def _ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InternalResponse:
        await self.connect()
        assert self._streams is not None
        reader, writer = self._streams
        path = f"{self._url.path.rstrip('/')}{target}"
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._url.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        is_kept = False
        try:
            writer.write("\r\n".join((*lines, "", "")).encode() + body)
            answer = _Answering()
            while not answer.is_complete:
                answer.feed(await reader.read(_READ_SIZE))
            is_kept = answer.is_kept
            return InternalResponse(answer.status, b"".join(answer.body))
        finally:
            if not is_kept:
                self.close()

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _connect_inside(
        self, path: Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inside.setblocking(False)
            await asyncio.get_running_loop().sock_connect(inside, str(path))
            said = inside.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            self.listener = _UCRED.unpack(said)[0] or None
            return await asyncio.open_unix_connection(sock=inside)
        except BaseException:
            inside.close()
            raise


class _Answering:
    """Reads one answer; the names of the callbacks are those of httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.body: list[bytes] = []
        self.status = 0
        self.is_complete = False
        self.is_kept = False

    def feed(self, data: bytes) -> None:
        if not data:
            raise ConnectionResetError("the connection was closed before the response was complete")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the response is not HTTP/1.1: {error}") from error

    def on_body(self, piece: bytes) -> None:
        self.body.append(piece)

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.is_kept = self._parser.should_keep_alive()
        self.is_complete = True
