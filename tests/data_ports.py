"""The data ports and the admin API of a small gateway of our own, over real sockets."""

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from serve.core.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    NotFound,
    ServegateError,
    Unavailable,
)
from serve.tensors.datatypes import to_raw

SCORES = np.array([[0.25, 0.75]], dtype=np.float32)
METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
RAW = {"x": np.zeros((1, 2), dtype=np.float32)}
STATISTICS = {"inference_stats": {"success": {"count": 4, "ns": 8}}}
# What a model is called decides what calling it answers: HTTP status, and gRPC code.
FAULTS = {
    "s400": (grpc.StatusCode.INVALID_ARGUMENT, BadRequest),
    "s404": (grpc.StatusCode.NOT_FOUND, NotFound),
    "s409": (grpc.StatusCode.ABORTED, Conflict),
    "s422": (grpc.StatusCode.INVALID_ARGUMENT, BadRequest),
    "s429": (grpc.StatusCode.RESOURCE_EXHAUSTED, Unavailable),
    "s503": (grpc.StatusCode.UNAVAILABLE, Unavailable),
    "s504": (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
    "s500": (grpc.StatusCode.INTERNAL, ServegateError),
}


class Gateway(BaseHTTPRequestHandler):
    """The data port and the admin API in one: SCORES, or the fault that the name asks for."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar = []

    def do_GET(self):
        if self.path == "/api/models/m":
            self.say(200, {"output_labels": {"y": ["cat", "dog"]}, "preprocessing": {}})
        elif self.path == "/v2/models/m/versions/2/stats":
            self.say(200, {"model_stats": [{"name": "m", "version": "2", **STATISTICS}]})
        elif self.path == "/metrics":
            self.say(200, b"servegate_calls_total 3\n")
        elif self.path.startswith("/v2/models/m"):
            self.say(200, METADATA)
        else:
            self.say(404, {"error": "not here"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked.append((self.path, dict(self.headers), body))
        name = self.path.split("/")[3]
        if name in FAULTS:
            text = "it failed: for a reason. Try: something else"
            self.say(int(name[1:]), {"error": text}, {"servegate-error": "a_code"})
        elif name == "html":
            self.say(502, b"<html>\n  <b>proxy</b></html>")
        elif name == "broken":
            self.say(200, b"{}", {"Inference-Header-Content-Length": "9"})
        else:
            head = json.dumps({"model_name": name, "model_version": "1", "outputs": [OUTPUT]})
            length = {"Inference-Header-Content-Length": str(len(head))}
            decided = {"servegate-version": "2; by=label:stable; generation=7"}
            self.say(200, head.encode() + to_raw(SCORES, "FP32"), length | decided)

    def say(self, status, content, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


OUTPUT = {
    "name": "y",
    "datatype": "FP32",
    "shape": [1, 2],
    "parameters": {"binary_data_size": SCORES.nbytes},
}


class GrpcGateway(grpc.GenericRpcHandler):
    """The same over gRPC."""

    def service(self, details):
        if details.method.endswith("ServerLive"):
            return grpc.unary_unary_rpc_method_handler(lambda message, context: b"\x08\x01")
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, message, context):
        asked = service_pb2.ModelInferRequest.FromString(message)
        if asked.model_name in FAULTS:
            context.set_trailing_metadata((("servegate-error", "a_code"),))
            code = FAULTS[asked.model_name][0]
            context.abort(code, "it failed: for a reason. Try: something else")
        context.set_trailing_metadata((("servegate-version", "3; by=number; generation=8"),))
        reply = service_pb2.ModelInferResponse(model_name=asked.model_name, model_version="1")
        reply.outputs.add(name="y", datatype="FP32", shape=[1, 2])
        reply.raw_output_contents.append(to_raw(SCORES, "FP32"))
        return b"\xff" if asked.model_name == "broken" else reply.SerializeToString()


@contextlib.contextmanager
def http_port() -> Iterator[str]:
    """Its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def grpc_port() -> Iterator[str]:
    """Its host:port."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((GrpcGateway(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
