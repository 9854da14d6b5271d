"""gRPC clients that disconnect with calls in flight, a hundred times: Triton stays alive.

Triton before 24.12 may crash when its own clients do that (server issues 7368 and 8034).
"""

import re
import socket

import harness
import hpack
import pytest
import repositories
from tritonclient import grpc as triton_grpc
from tritonclient.grpc import service_pb2

from serve.wire import http2

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

STORMS, CALLS = 100, 16
SLOW = repositories.PLAIN.replace(
    "(self, requests):", "(self, requests):\n        time.sleep(0.01)", 1
).replace("import triton", "import time\nimport triton", 1)


def storm(address):
    """A connection that begins sixteen calls and is gone before any of them is answered."""
    message = service_pb2.ModelInferRequest(model_name="echo")
    message.inputs.add(name="x", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    body = message.SerializeToString()
    head = hpack.Encoder().encode(
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/inference.GRPCInferenceService/ModelInfer"),
            (":authority", address),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ],
        huffman=False,
    )
    frames = [http2.PREFACE, http2.frame(http2.SETTINGS, 0, 0, b"")]
    for number in range(1, 2 * CALLS, 2):
        frames.append(http2.frame(http2.HEADERS, http2.END_HEADERS, number, head))
        data = b"\0" + len(body).to_bytes(4) + body
        frames.append(http2.frame(http2.DATA, http2.END_STREAM, number, data))
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"".join(frames))


def in_flight(up):
    """Calls in flight in all workers, as the metrics port says."""
    counts = re.findall(r"^servegate_calls_in_flight\{.*\} (\S+)$", up.metrics(), re.MULTILINE)
    return sum(float(count) for count in counts)


def test_a_hundred_disconnect_storms_leave_triton_alive_and_nothing_in_flight(tmp_path):
    models = tmp_path / "models"
    repositories.python_model(models, "echo", SLOW)
    flags = ("--model-repo", str(models), "--replicas", "1", "--workers", "2")
    with harness.up(tmp_path / "state", *flags) as up:
        before = up.children()
        for _ in range(STORMS):
            storm(up.grpc)
        harness.until(lambda: in_flight(up) == 0, what="no call is in flight")
        with triton_grpc.InferenceServerClient(up.grpc) as client:
            assert client.is_model_ready("echo")
        assert up.children() == before, "a process has died"
        counted = re.search(
            r"^servegate_errors_total\{.*client_left.*\} (\S+)$", up.metrics(), re.M
        )
        assert counted and float(counted[1]) > STORMS, "the storms have not reached Triton"
