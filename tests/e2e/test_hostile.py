"""What broke the gateway once, by accident or on purpose, and must not again."""

import http.client
import json
import os
import shutil
import signal
import time

import harness
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()
INFER = "/v2/models/digits/infer"
ODD = (
    ("GET", "/api/models/%00", None),
    ("GET", "/api/models/digits/versions/99999999999999999999999999", None),
    ("GET", "/api/models/digits/versions/1/files/..%2f..%2fcontrol.sqlite", None),
    ("GET", "/api/history/99999999999999999999999999", None),
    ("POST", "/api/history/99999999999999999999999999/rollback", None),
    ("PUT", "/api/routes/digits", {"split": {str(10**30): 1}}),
    ("PUT", "/api/models/digits/labels/latest", {"version": 1}),
    ("PATCH", "/api/models/digits/versions/1", {"labels": ["x"] * 10_000 + ["\0"]}),
    ("PATCH", "/api/models/digits/versions/1", {"tags": {"": "x"}}),
    ("POST", "/api/gc", {"grace": "soon"}),
    ("POST", "/api/uploads", {"model": "n" * 256, "files": []}),
    ("POST", "/api/uploads/../commit", {}),
    ("DELETE", "/api/uploads/%2e%2e", None),
)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A gateway of its own, on a copy of the demo's repository that may be damaged."""
    folder = tmp_path_factory.mktemp("own")
    models = folder / "models"
    shutil.copytree(harness.ROOT / "model_repo", models)
    flags = ("--model-repo", str(models), "--replicas", "2")
    with harness.up(folder / "state", *flags) as up:
        yield up, models


def call(up):
    return harness.request(f"http://{up.http}{INFER}", "POST", json.loads(SEVEN))[0]


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


def test_an_odd_request_is_refused_with_a_reason_and_changes_nothing(gateway):
    before = gateway.get("/api/routes/digits")
    for method, path, body in ODD:
        status, answer = harness.request(gateway.admin + path, method, body)
        assert 400 <= status < 500, (path, answer)
        assert answer["code"] and answer["what"], path
    assert gateway.get("/api/routes/digits") == before


def test_a_configuration_that_is_broken_by_a_typo_leaves_the_model_serving(own):
    up, models = own
    config = models / "digits" / "config.pbtxt"
    good = config.read_text()

    def problems():
        return " ".join(up.get("/api/models/digits")["problems"])

    config.write_text("garbage {{{")
    harness.until(lambda: "config.pbtxt cannot be read" in problems())
    assert call(up) == 200
    config.write_text(good)
    harness.until(lambda: not problems())
    assert call(up) == 200


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
