"""Replicas that a test scripts, on real ports: they read strictly and keep all that came."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from listeners.http_messages import reply


class Received:
    """A request at a replica; `over` ends the script that plays by hand."""

    def __init__(self, head: bytes, peer: Peer) -> None:
        self.head = head
        self.line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        self.headers = [tuple(line.split(": ", 1)) for line in lines]
        self.size = 0
        self.body = b""
        self.is_complete = False
        self._digest = hashlib.sha256()
        self._peer = peer

    def header(self, name: str) -> str | None:
        """The value of a header that may not come twice."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]

    async def read(self) -> Received:
        """Read the body to its end, strictly: one framing, nothing odd."""
        length, coding = self.header("content-length"), self.header("transfer-encoding")
        if self.line.startswith("GET "):
            assert length is None and coding is None, self.head
        elif length is not None:
            assert coding is None, self.head
            await self.read_some(int(length) - self.size)
        else:
            assert coding == "chunked"
            while size := int(await self._peer.line(), 16):
                await self.read_some(size)
                assert await self._peer.line() == b""
            assert await self._peer.line() == b""
        self.is_complete = True
        return self

    async def read_some(self, size: int) -> None:
        """Read so many bytes of the body."""
        while size:
            data = await self._peer.reader.read(min(size, 1 << 18))
            if not data:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(data)
            self.size += len(data)
            self._digest.update(data)
            if self.size <= 1 << 20:
                self.body += data

    def write(self, data: bytes) -> None:
        self._peer.writer.write(data)

    async def drain(self) -> None:
        await self._peer.writer.drain()

    def close(self) -> None:
        self._peer.writer.close()

    def reset(self) -> None:
        """Close so that the other side sees a reset."""
        peer: Any = self._peer.writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._peer.writer.transport.abort()


Script = Callable[[Received], Awaitable[None]]


async def answers_good(call: Received) -> None:
    """Reads the request and answers."""
    await call.read()
    call.write(reply())


def answering(data: bytes, *later: bytes) -> Script:
    """A script that reads each request and answers with these bytes; later ones with others."""
    waiting = [data, *later]

    async def script(call: Received) -> None:
        await call.read()
        call.write(waiting.pop(0) if len(waiting) > 1 else waiting[0])

    return script


def breaking_off(data: bytes = b"", *, resets: bool = False) -> Script:
    """A script that reads the request, sends these bytes and goes away."""

    async def script(call: Received) -> None:
        await call.read()
        if data:
            call.write(data)
            await call.drain()
        call.reset() if resets else call.close()

    return script


def answering_by(make: Callable[[Received], bytes]) -> Script:
    """A script that reads each request and answers with what is made of it."""

    async def script(call: Received) -> None:
        await call.read()
        call.write(make(call))

    return script


echoes = answering_by(lambda call: reply(call.body))


@dataclass(slots=True)
class Peer:
    """One connection at a replica."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def line(self) -> bytes:
        line = await self.reader.readuntil(b"\r\n")
        return line[:-2]


class Replica:
    """A Triton whose part a script plays; `requests` is all that ever came, in its order."""

    def __init__(self) -> None:
        self.script: Script = answers_good
        self.requests: list[Received] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        try:
            while not writer.is_closing():
                call = Received(await reader.readuntil(b"\r\n\r\n"), peer)
                self.requests.append(call)
                await self.script(call)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # asyncio's streams complain of tasks that were cancelled
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def listen(self) -> asyncio.Server:
        """Open a port of its own."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 18)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def stop(self) -> None:
        """The scripts end wherever they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    def by_hand(self) -> Hand:
        """From now on the test itself plays the replica."""
        hand = Hand()
        self.script = hand.script
        return hand

    @property
    def lines(self) -> list[str]:
        return [call.line for call in self.requests]

    @property
    def bodies(self) -> list[bytes]:
        return [call.body for call in self.requests]


class Hand:
    """The requests of a replica whose part the test plays."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[Received] = asyncio.Queue()
        self._over: dict[Received, asyncio.Event] = {}

    async def script(self, call: Received) -> None:
        over = self._over[call] = asyncio.Event()
        self._calls.put_nowait(call)
        await over.wait()

    async def call(self) -> Received:
        """The next request; its body has not been read."""
        return await self._calls.get()

    async def answer(self, call: Received, data: bytes | None = None) -> None:
        """Read a request to its end and answer it, well unless these are other bytes."""
        await call.read()
        call.write(reply() if data is None else data)
        self.done(call)

    def done(self, call: Received) -> None:
        """The replica may read the next request of that connection."""
        self._over[call].set()

    def done_all(self) -> None:
        for over in self._over.values():
            over.set()
