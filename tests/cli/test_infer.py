"""`servegate infer` against a small gateway of our own, over real sockets, HTTP and gRPC."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import grpc
import numpy as np
import pytest
import typer
from tritonclient.grpc import service_pb2
from typer.testing import CliRunner

from serve.cli.asked import Asked, parse_asked
from serve.cli.calling import GrpcCaller, HttpCaller
from serve.cli.infer import infer
from serve.core.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    Invalid,
    NotFound,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.tensors.codec import MalformedReply
from serve.tensors.datatypes import to_raw

SCORES = np.array([[0.25, 0.75]], dtype=np.float32)
METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
RAW = {"x": np.zeros((1, 2), dtype=np.float32)}
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


@pytest.fixture(scope="module")
def http_url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def grpc_url():
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((GrpcGateway(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def command(http_url, grpc_url):
    """`command(*arguments)` runs `servegate infer`; errors of ours are raised as they are."""
    app = typer.Typer()
    app.command()(infer)

    def run(*arguments, admin=http_url):
        urls = ["--url", http_url, "--grpc-url", grpc_url, "--admin-url", admin]
        result = CliRunner().invoke(app, [*arguments, *urls])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.mark.parametrize(
    ("text", "asked"),
    [("m", Asked("m")), ("m@3", Asked("m", "3")), ("m:stable", Asked("m", "stable"))],
)
def test_a_name_may_carry_a_version_or_a_label(text, asked):
    assert parse_asked(text) == asked


@pytest.mark.parametrize(
    "text", ["", "m@", "m@x", "m@-1", "m:", "m:2", "a/b", "m@3:stable", "stats"]
)
def test_other_names_are_refused(text):
    with pytest.raises(Invalid):
        parse_asked(text)


def test_the_command_shows_who_answered_and_the_labelled_scores(command):
    result = command("m", "--input", "random", "--top-k", "1")
    first, *rest = result.stdout.splitlines()
    assert first.startswith("m version 2 (by label:stable, generation 7), ")
    assert rest == ["y  FP32 [1, 2]", "  index  label   score", "      1  dog    0.7500"]
    assert result.stderr == ""


def test_json_is_one_object_on_stdout_over_grpc_too(command):
    result = command("m@3", "--input", "x=random", "--grpc", "--json", "--repeat", "3")
    shown = json.loads(result.stdout)
    assert (shown["version"], shown["by"], shown["generation"]) == (3, "number", 8)
    assert [row["label"] for row in shown["outputs"]["y"]["top_k"][0]] == ["dog", "cat"]
    assert shown["repeat"]["versions"] == {"3": 3}


def test_without_the_admin_api_the_answer_has_no_labels_and_says_so(command):
    result = command("m", "--input", "random", admin="http://127.0.0.1:9")
    assert "      1  0.7500" in result.stdout
    assert result.stderr.startswith("no label texts: ")


def test_the_selector_and_binary_tensors_are_sent(command):
    command("m:stable", "--input", "random", "--batch", "3")
    path, headers, body = Gateway.asked[-1]
    assert path == "/v2/models/m/versions/stable/infer"
    length = int(headers["Inference-Header-Content-Length"])
    assert json.loads(body[:length])["inputs"][0]["shape"] == [3, 2]
    assert len(body) == length + 3 * 2 * 4


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_gateway_refuses_becomes_the_same_error_here(name, http_url, grpc_url):
    kind = FAULTS[name][1]
    with HttpCaller(http_url) as over_http, GrpcCaller(grpc_url) as over_grpc:
        for caller in (over_http, over_grpc):
            with pytest.raises(ServegateError) as raised:
                caller.infer(Asked(name), RAW, {})
            assert type(raised.value) is kind
            if kind is not DeadlineExceeded:
                assert raised.value.what == "it failed: for a reason"
                assert raised.value.try_this == "something else"
                assert raised.value.code == "a_code"


def test_a_model_that_does_not_exist_is_not_found(command):
    with pytest.raises(NotFound, match="not here"):
        command("nope", "--input", "random")


def test_an_error_without_json_is_told_in_one_line(http_url):
    with HttpCaller(http_url) as caller, pytest.raises(OutcomeUnknown) as raised:
        caller.infer(Asked("html"), RAW, {})
    assert raised.value.what == "the gateway answered 502: <html> <b>proxy</b></html>"


def test_a_reply_that_breaks_the_protocol_is_a_malformed_reply(http_url, grpc_url):
    with HttpCaller(http_url) as over_http, GrpcCaller(grpc_url) as over_grpc:
        for caller in (over_http, over_grpc):
            with pytest.raises(MalformedReply):
                caller.infer(Asked("broken"), RAW, {})


def test_a_gateway_that_is_not_there_says_what_to_try():
    with HttpCaller("127.0.0.1:9") as caller, pytest.raises(Unavailable) as raised:
        caller.metadata(Asked("m"))
    assert raised.value.what == "the gateway at http://127.0.0.1:9 does not answer"
    assert "servegate up" in raised.value.try_this
    with pytest.raises(Unavailable, match="--grpc-url"), GrpcCaller("127.0.0.1:9"):
        pass
