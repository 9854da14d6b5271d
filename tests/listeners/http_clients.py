"""A raw HTTP/1.1 client, which reads answers strictly."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Answer:
    """An answer as a client got it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    is_chunked: bool = False

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def code(self) -> str | None:
        return self.header("servegate-error")


class Client:
    """A raw connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        """Send; each piece is one segment."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def ask(self, data: bytes, *, method: str = "POST") -> Answer:
        """Send a request and read its answer."""
        self.writer.write(data)
        return await self.answer()

    async def head(self) -> Answer:
        """The next answer, without its body; interim answers are answers too."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        match = re.match(r"HTTP/1\.1 (\d{3}) ", line + " ")
        assert match is not None, line
        headers = [tuple(one.split(": ", 1)) for one in lines]
        return Answer(int(match[1]), [(name, value) for name, value in headers])

    async def answer(self) -> Answer:
        """The next answer, whole."""
        answer = await self.head()
        length, coding = answer.header("content-length"), answer.header("transfer-encoding")
        assert length is None or coding is None
        if answer.status < 200 or answer.status in (204, 304):
            return answer
        if length is not None:
            answer.body = await self.reader.readexactly(int(length))
        elif coding == "chunked":
            answer.is_chunked = True
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                answer.body += await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readexactly(2) == b"\r\n"
        else:
            answer.body = await self.reader.read()
        return answer

    async def refusal(self) -> tuple[int, str | None]:
        """Status and code of the last answer of a connection, which ends with it."""
        answer = await self.answer()
        assert answer.header("connection") == "close"
        assert await self.rest() == b""
        return answer.status, answer.code

    async def rest(self) -> bytes:
        """What comes until the listener closes; a reset counts as closing."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(1 << 16):
                received += data
        return received

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Go away so that the other side sees a reset."""
        peer: Any = self.writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
