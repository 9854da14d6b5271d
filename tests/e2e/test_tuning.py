"""Batching is tuned on a real Triton, with real load: `servegate batching tune`."""

import json
import subprocess

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SLOW = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.03)  # however many rows there are
        return [
            pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())])
            for r in requests
        ]
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    pushing.python(folder / "plain" / "slow", SLOW)
    flags = ("--model-repo", str(folder / "plain"), "--replicas", "1", "--workers", "1")
    with harness.up(folder / "state", *flags) as running:
        running.folder = folder
        yield running


def tune(up, *arguments):
    command = [str(harness.BIN / "servegate"), "batching", "tune", *arguments]
    where = ("--admin-url", up.admin, "--out", str(up.folder / "reports"), "--json")
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=180)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events and events[-1]["type"] == "result", done.stderr
    return done.returncode, events


def test_batching_is_found_for_a_model_that_is_made_for_it(up):
    options = ("--slo", "p99<3s", "--budget", "45s", "--instances", "1", "--max-batch", "8")
    code, events = tune(up, "slow", *options)
    result = events[-1]
    assert (code, result["ok"]) == (0, True), result
    assert result["best"] and result["best"]["setup"]["batches"], result
    assert result["best"]["rate"] > 1 / 0.03  # which one call after the other cannot reach
    assert any(event["type"] == "progress" for event in events)
    folder = next(iter((up.folder / "reports").iterdir()))
    names = sorted(each.name for each in folder.iterdir())
    assert names == ["report.html", "report.json", "state.json"]
    assert json.loads((folder / "report.json").read_text())["best"] == result["best"]
    status, answer = harness.request(f"{up.admin}/api/benches/none")
    assert (status, answer["code"]) == (404, "not_found")
