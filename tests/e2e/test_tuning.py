"""Batching is tuned on a real Triton, with real load: `servegate batching tune`."""

import json
import signal
import subprocess

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
MEASURES = "progress".__eq__
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
    for name, more in (("slow", ""), ("told", "sequence_batching { }\n")):
        pushing.python(folder / "plain" / name, SLOW, more=more)
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


def test_what_cannot_be_tuned_is_refused_before_anything_is_measured(up):
    code, events = tune(up, "told", "--slo", "p99<1s")
    assert code == 2
    assert "calls of a sequence depend on each other" in events[-1]["why"]
    code, events = tune(up, "slow")
    assert (code, events[-1]["try_this"]) == (2, "--slo 'p99<50ms'")
    code, events = tune(up, "slow", "--slo", "p99<1s", "--replica", "local-0")
    assert code == 6
    assert "cannot be taken out of rotation" in events[-1]["what"]


def test_a_tuning_that_is_interrupted_ends_its_bench_and_goes_on_later(up, tmp_path):
    command = [str(harness.BIN / "servegate"), "batching", "tune", "slow", "--slo", "p99<1s"]
    where = ("--admin-url", up.admin, "--out", str(tmp_path), "--json")
    running = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    told = (json.loads(line)["type"] for line in running.stdout)
    assert [kind for kind, _ in zip(filter(MEASURES, told), range(2), strict=False)]
    running.send_signal(signal.SIGINT)
    last = [json.loads(line) for line in running.stdout][-1]
    assert (running.wait(60), last["code"]) == (130, "interrupted")
    (folder,) = tmp_path.iterdir()
    measured = len(json.loads((folder / "state.json").read_text())["entries"])
    assert measured >= 1
    options = ("--slo", "p99<1s", "--resume", str(folder), "--budget", "8s")
    code, events = tune(up, "slow", *options)
    assert code == 0, events[-1]
    assert len(json.loads((folder / "report.json").read_text())["entries"]) >= measured
