"""HTTP servers that are scripted: every byte of one, and one in a thread for blocking clients."""

import asyncio
import queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def answer(body: bytes = b"", status: str = "200 OK") -> bytes:
    """A whole answer; one of status 204 has no length."""
    length = "" if status.startswith("204") else f"content-length: {len(body)}\r\n"
    return f"HTTP/1.1 {status}\r\n{length}\r\n".encode() + body


class Scripted:
    """Answers each question with the next of its answers; an empty one ends the connection.

    After the last one it answers with `then`, or holds the question if that is None. Answers leave
    in pieces of `at_once` bytes.
    """

    def __init__(self, *answers: bytes, then: bytes | None = None, at_once: int = 1 << 20) -> None:
        self._answers = list(answers)
        self.then = then
        self._at_once = at_once
        self.heads: list[str] = []
        self.bodies = asyncio.Queue[bytes]()
        self.connections = 0
        self.is_held = asyncio.Event()

    @property
    def asked(self) -> list[str]:
        return [head.partition(" HTTP")[0] for head in self.heads]

    async def listen(self, path: Path | None = None) -> str:
        if path is not None:
            self.server = await asyncio.start_unix_server(self._talk, str(path))
            return str(path)
        self.server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another question may follow on this connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        _, _, length = head.partition("content-length: ")
        self.heads.append(head)
        self.bodies.put_nowait(await reader.readexactly(int(length.split()[0]) if length else 0))
        said = self._answers.pop(0) if self._answers else self.then
        if said is None:
            self.is_held.set()
            await reader.read()
            return False
        for start in range(0, len(said), self._at_once):
            writer.write(said[start : start + self._at_once])
            await writer.drain()
            await asyncio.sleep(0)
        return bool(said)


class Threaded(ThreadingHTTPServer):
    """Answers every request with its `status` and `text`; `requests` are their paths and bodies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.text = 200, ""
        self.requests = queue.Queue[tuple[str, bytes]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Threaded

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.put((self.path, body))
        text = self.server.text.encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...
