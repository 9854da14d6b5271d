"""A TensorFlow model, from its SavedModel to answers: converted by a command, or by the gateway."""

import json
import subprocess
import sys
import time
from pathlib import Path

import harness
import numpy as np
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.tensorflow, pytest.mark.slow]
PATIENCE = 600.0  # seconds; TensorFlow alone takes many to be imported on a busy machine
SAVE = """
import sys
import tensorflow as tf

class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def threefold(self, x):
        return {"y": 3.0 * x}

model = Model()
tf.saved_model.save(model, sys.argv[1], signatures=model.threefold)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel, with samples next to it."""
    folder = tmp_path_factory.mktemp("saved") / "threefold"
    subprocess.run([sys.executable, "-c", SAVE, str(folder)], check=True, capture_output=True)
    rows = np.array([pushing.ROW, [9.0, 8.0, 7.0, 6.0]], np.float32)
    np.savez(folder.with_name("samples.npz"), x=rows)
    return folder


def assert_converted(up: harness.RunningGateway, model: str) -> None:
    """Version 1 answers as TensorFlow does, and says where it comes from."""
    pushing.wait_state(up, model, 1, "ready", "serving")
    assert pushing.factor_of(up, model) == 3.0
    shown = pushing.state(up, model, 1)
    paths = {file["path"] for file in shown["files"]}
    assert {"conversion.json", "conversion.html", "contract/contract.json"} <= paths
    tools = " ".join(shown["provenance"]["tools"])  # of which TensorFlow has several names
    assert "tensorflow" in tools and "tf2onnx" in tools


def test_a_savedmodel_is_pushed_once_it_is_converted(
    saved: Path, uploading: harness.RunningGateway
) -> None:
    def push(*flags: str) -> "subprocess.CompletedProcess[str]":
        command = [str(harness.BIN / "servegate"), "model", "push", str(saved), "saved"]
        where = ("--admin-url", uploading.admin)
        return subprocess.run(
            [*command, *where, *flags], capture_output=True, text=True, timeout=PATIENCE
        )

    refused = push()
    assert refused.returncode == 2 and "--convert" in refused.stderr
    samples = str(saved.with_name("samples.npz"))
    done = push("--convert", "--samples", samples, "--wait", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["version"] == 1
    assert_converted(uploading, "saved")


def test_an_uploaded_saved_model_is_converted_by_the_gateway(
    saved: Path, uploading: harness.RunningGateway
) -> None:
    up = uploading
    samples = saved.with_name("samples.npz").read_bytes()
    files = pushing.files_of(saved) | {"samples.npz": samples}
    body = {
        "upload": pushing.upload(up, "converted", files, kind="source"),
        "model": "converted",
        "request": {"samples": "samples.npz", "golden": 2},
    }
    status, begun = harness.request(f"{up.admin}/api/conversions", "POST", body)
    assert status == 202, begun
    path = f"/api/conversions/{begun['id']}"
    after, last = 0, time.monotonic() + PATIENCE
    while (job := up.get(path))["state"] not in ("done", "failed", "refused", "cancelled"):
        assert time.monotonic() < last, job
        news = up.get(f"{path}/events?after={after}&wait=20")
        after = news["after"] if news else after
    assert (job["state"], job["version"]) == ("done", 1), job
    assert_converted(up, "converted")
    report = up.get(f"{path}/report")
    assert report["passed"]
    assert str(up.state) not in str(report) + str(job)
    assert not list((up.state / "conversions").iterdir())
