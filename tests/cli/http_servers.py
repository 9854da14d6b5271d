"""HTTP servers on a port of this machine, for the commands that call one."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn
from builders import until
from fastapi import FastAPI


@dataclass(frozen=True, slots=True)
class Request:
    """What was sent; `path` is with its query, the names of `headers` are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@contextmanager
def answering(answer: Callable[[Request], tuple[int, Any]]) -> Iterator[str]:
    """The URL of a server whose answers have this status and body: bytes, or else JSON."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            sent = self.rfile.read(int(headers.get("content-length", 0)))
            status, page = answer(Request(self.command, self.path, headers, sent))
            body = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond

        def handle(self) -> None:
            with suppress(ConnectionError):  # the command has left
                super().handle()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.001,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving_app(app: FastAPI) -> Iterator[str]:
    """The URL of an application that a thread serves."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    asyncio.run(until(lambda: server.started))
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
