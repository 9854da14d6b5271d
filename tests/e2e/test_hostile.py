"""What broke the gateway once, by accident or on purpose, and must not again."""

import http.client
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import harness
import pytest
import repositories

pytestmark = [pytest.mark.triton, pytest.mark.slow]

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()
INFER = "/v2/models/digits/infer"

REFUSING = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.log = open({log!r}, "a", buffering=1)

    def execute(self, requests):
        self.log.write("x\\n" * len(requests))
        error = pb.TritonError({text!r}, {code})
        return [pb.InferenceResponse([], error) for _ in requests]
"""


def exchange(address: str, data: bytes) -> bytes:
    """Raw bytes there, raw bytes back until the other side closes or has answered."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        answer = connection.recv(65536)
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
        return answer


def test_a_large_body_that_curl_calls_a_form_does_not_crash_triton(gateway):
    tritons = {name: pid for name, pid in gateway.children().items() if "local" in name}
    connection = http.client.HTTPConnection(gateway.http, timeout=60)
    headers = {"content-type": "application/x-www-form-urlencoded"}
    for _ in range(4):
        connection.request("POST", INFER, bytes(16 << 20), headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (400, 500)  # Triton's own answer to nonsense
    connection.close()
    assert {n: p for n, p in gateway.children().items() if "local" in n} == tritons
    assert all(harness.is_alive(pid) for pid in tritons.values())


@pytest.mark.parametrize("cut", [0, 5, 40])
def test_a_client_that_offers_http2_is_answered_over_http1(gateway, cut):
    head = (
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        f"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n"
        f"Content-Length: {len(SEVEN)}\r\n\r\n"
    ).encode()
    data = head + SEVEN
    host, port = gateway.http.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(data[: len(head) + cut])
        connection.sendall(data[len(head) + cut :])
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200
        assert json.loads(answer.read())["model_name"] == "digits"
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")  # and goes on
        again = http.client.HTTPResponse(connection)
        again.begin()
        assert again.status == 200


def test_what_else_such_a_client_says_of_its_connection_stays_in_force(gateway):
    head = (
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n"
        f"Content-Length: {len(SEVEN)}\r\n\r\n"
    ).encode()
    host, port = gateway.http.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head + SEVEN)
        received = b""
        while piece := connection.recv(65536):  # until the gateway closes, as it was asked to
            received += piece
    assert received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("line", [b"CONNECT x:1 HTTP/1.1", b"nonsense", b"GET / HTTP/9.9"])
def test_what_is_no_request_is_refused_in_the_shape_of_every_error(gateway, line):
    answer = exchange(gateway.http, line + b"\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"servegate-error: bad_request" in answer.lower()
    assert "error" in json.loads(answer.partition(b"\r\n\r\n")[2])


REFUSALS = {
    "busy": ("busy with something else", "pb.TritonError.UNAVAILABLE"),
    "absent": ("Request for unknown model: 'part' is not found", "pb.TritonError.NOT_FOUND"),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A gateway of its own, on a copy of the demo's repository that may be damaged.

    Beside the demo there are models that refuse, and write down that they ran.
    """
    folder = tmp_path_factory.mktemp("own")
    models = folder / "models"
    shutil.copytree(harness.ROOT / "model_repo", models)
    for name, (text, code) in REFUSALS.items():
        log = str(folder / f"{name}.log")
        refusing = REFUSING.format(log=log, text=text, code=code)
        repositories.python_model(models, name, refusing)
    flags = ("--model-repo", str(models), "--replicas", "2")
    with harness.up(folder / "state", *flags) as up:
        yield up, models


@pytest.mark.parametrize("name", REFUSALS)
def test_a_model_that_has_run_and_answers_unavailable_is_not_run_again(own, name):
    up, models = own
    url = f"http://{up.http}/v2/models/{name}/infer"
    status, _ = harness.request(url, "POST", repositories.request())
    assert status in (404, 503)
    assert len((models.parent / f"{name}.log").read_text().split()) == 1


def problems(up):
    return " ".join(up.get("/api/models/digits")["problems"])


def call(up):
    return harness.request(f"http://{up.http}{INFER}", "POST", json.loads(SEVEN))[0]


def test_a_configuration_that_is_broken_by_a_typo_leaves_the_model_serving(own):
    up, models = own
    config = models / "digits" / "config.pbtxt"
    good = config.read_text()
    config.write_text("garbage {{{")
    harness.until(lambda: "config.pbtxt cannot be read" in problems(up))
    assert call(up) == 200
    config.write_text(good)
    harness.until(lambda: not problems(up))
    assert call(up) == 200


def test_folders_that_are_no_models_harm_nobody(own):
    up, models = own
    control = up.children()["control"]
    known = {"digits", *REFUSALS}
    strange = Path(os.fsdecode(os.fsencode(models) + b"/bad\xff"))
    (strange / "1").mkdir(parents=True)
    (models / "digits" / "99999999999999999999").mkdir()
    harness.until(lambda: len(up.get("/api/models")) == len(known) + 1)
    assert {model["state"] for model in up.get("/api/models")} == {"ready", "failed"}
    assert all(replica["state"] == "up" for replica in up.get("/api/replicas"))
    assert call(up) == 200
    shutil.rmtree(strange)
    (models / "digits" / "99999999999999999999").rmdir()
    harness.until(lambda: {model["name"] for model in up.get("/api/models")} == known)
    assert up.children()["control"] == control


def test_a_configuration_edited_after_a_restart_of_control_is_applied_everywhere(own):
    up, models = own
    control = up.children()["control"]
    os.kill(control, signal.SIGKILL)
    harness.until(lambda: up.children().get("control", control) != control)
    harness.until(lambda: settled(up))
    config = models / "digits" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 64", "max_batch_size: 32"))
    harness.until(lambda: batch_sizes(up) == {32}, what="both Tritons have the new configuration")
    assert call(up) == 200


def settled(up):
    try:
        return all(r["state"] == "up" and r["held"] for r in up.get("/api/replicas"))
    except OSError:
        return False


def batch_sizes(up):
    sizes = set()
    for replica in up.get("/api/replicas"):
        host, port, *_ = replica["address"].split(":")
        sizes.add(
            harness.request(f"http://{host}:{port}/v2/models/digits/config")[1].get(
                "max_batch_size"
            )
        )
    return sizes


def test_a_replica_whose_model_process_has_died_is_avoided(own):
    up, _ = own
    harness.until(lambda: call(up) == 200)
    triton = up.children()["local-0"]
    for stub in harness.descendants(triton):
        os.kill(stub, signal.SIGKILL)
    begun = time.monotonic()
    outcomes = [call(up) for _ in range(60)]
    assert outcomes.count(200) >= 50, outcomes
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("control.sqlite", b"this is no database" * 100, "control.sqlite cannot be read"),
        ("secret", b"caf\xc3\xa9", "holds no secret"),
    ],
)
def test_a_spoilt_state_folder_is_told_in_a_sentence(tmp_path, name, content, wanted):
    state = tmp_path / "state"
    state.mkdir()
    (state / name).write_bytes(content)
    up = harness.Up(state)
    up.program.wait_line(wanted)
    up.program.stop()
    assert "Traceback" not in up.program.output


def test_a_spoilt_snapshot_is_not_served_and_does_not_keep_the_gateway_from_starting(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "snapshot.json").write_bytes(b"[" * 100_000)
    with harness.up(state) as up:
        assert call(up) == 200
