"""A server of one model, `m`, that scores class 1 highest in every row: KServe v2, TF-Serving."""

from __future__ import annotations

import json
import struct
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1, 2]}
SCORES = [0.25, 0.75]
ANSWER = {"model_name": "m", "model_version": "3"}
HEAD_LENGTH = "Inference-Header-Content-Length"


class ModelServer:
    """From `with` to its end. `calls` are the paths that were posted to.

    `holds` is waited for before each answer; it is set, unless a test clears it.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.holds = threading.Event()
        self.holds.set()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


class _Handler(BaseHTTPRequestHandler):
    owner: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path.startswith("/v2/models/m"):
            self._answer(200, METADATA)
        else:
            self._answer(404, {"error": "Request for unknown model"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.owner.calls.append(self.path)
        self.owner.holds.wait()
        if self.path.endswith(":predict"):
            self._answer(200, {"predictions": [SCORES]})
        elif HEAD_LENGTH in self.headers:
            output = OUTPUT | {"parameters": {"binary_data_size": 8}}
            self._answer(200, ANSWER | {"outputs": [output]}, struct.pack("<2f", *SCORES))
        else:
            self._answer(200, ANSWER | {"outputs": [OUTPUT | {"data": SCORES}]})

    def handle(self) -> None:
        """Clients may go as they like."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, status: int, page: object, tensors: bytes = b"") -> None:
        head = json.dumps(page, separators=(",", ":")).encode()  # as Triton writes it
        body = head + tensors
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if tensors:
            self.send_header(HEAD_LENGTH, str(len(head)))
        self.end_headers()
        self.wfile.write(body)
