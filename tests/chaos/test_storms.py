"""gRPC clients that disconnect with calls in flight, a hundred times: Triton stays alive.

Triton before 24.12 may crash when its own clients do that (server issues 7368 and 8034).
"""

import re
import socket

import attackers
import harness
import pytest
import repositories
from tritonclient import grpc as triton_grpc

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

STORMS = 100


def storm(address):
    """A connection that begins sixteen calls and is gone before any of them is answered."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(attackers.begun_calls(address, "echo"))


def in_flight(up):
    """Calls in flight in all workers, as the metrics port says."""
    counts = re.findall(r"^servegate_calls_in_flight\{.*\} (\S+)$", up.metrics(), re.MULTILINE)
    return sum(float(count) for count in counts)


def test_a_hundred_disconnect_storms_leave_triton_alive_and_nothing_in_flight(tmp_path):
    models = tmp_path / "models"
    repositories.python_model(models, "echo", repositories.sleeping(0.01))
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
