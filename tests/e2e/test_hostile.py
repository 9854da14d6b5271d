"""What broke the gateway once, by accident or on purpose, and must not again."""

import http.client
import json
import os
import shutil
import signal
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


def test_a_model_that_has_run_and_answers_unavailable_is_not_run_again(own):
    up, models = own
    for name in REFUSALS:
        url = f"http://{up.http}/v2/models/{name}/infer"
        assert harness.request(url, "POST", repositories.request())[0] in (404, 503)
        assert len((models.parent / f"{name}.log").read_text().split()) == 1, name


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
    addresses = [replica["address"].split(":") for replica in up.get("/api/replicas")]
    urls = [f"http://{host}:{port}/v2/models/digits/config" for host, port, *_ in addresses]
    return {harness.request(url)[1].get("max_batch_size") for url in urls}


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


def test_a_spoilt_state_folder_gives_a_sentence(tmp_path):
    for name, content, wanted in (
        ("control.sqlite", b"this is no database" * 100, "control.sqlite cannot be read"),
        ("secret", b"caf\xc3\xa9", "does not contain a valid secret"),
    ):
        state = tmp_path / name
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
