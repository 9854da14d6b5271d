"""A SavedModel is uploaded, converted by the gateway and served by its Triton, or refused."""

import subprocess
import sys
import time
from pathlib import Path

import harness
import numpy as np
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.tensorflow, pytest.mark.slow]
PATIENCE = 400.0  # seconds for a conversion on a machine that is busy otherwise
SAVE = """
import sys
import tensorflow as tf

class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def threefold(self, x):
        return {"y": 3.0 * x}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def reads(self, x):
        return {"y": x + tf.strings.to_number(tf.io.read_file("/etc/hostname"))}

model = Model()
for name in ("threefold", "reads"):
    tf.saved_model.save(model, sys.argv[1] + "/" + name, signatures=getattr(model, name))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with two SavedModels."""
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, "-c", SAVE, str(folder)], check=True, capture_output=True)
    np.savez(folder / "samples.npz", x=np.array([pushing.ROW, [9.0, 8.0, 7.0, 6.0]], np.float32))
    return folder


def uploaded(up: harness.RunningGateway, folder: Path, **more: bytes) -> str:
    """Upload a source, and what is next to it; gives the upload's id."""
    return pushing.upload(up, "converted", pushing.files_of(folder) | more, kind="source")


def converted(up: harness.RunningGateway, name: str, upload: str, **asked) -> dict:
    """Ask for a conversion, and follow it to its end."""
    body = {"upload": upload, "model": name, **asked}
    status, begun = harness.request(f"{up.admin}/api/conversions", "POST", body)
    assert status == 202, begun
    path = f"/api/conversions/{begun['id']}"
    after, last = 0, time.monotonic() + PATIENCE
    while (job := up.get(path))["state"] not in ("done", "failed", "refused", "cancelled"):
        assert time.monotonic() < last, job
        news = up.get(f"{path}/events?after={after}&wait=20")
        after = news["after"] if news else after
    return job


def test_an_uploaded_saved_model_is_served_as_it_was(uploading, saved):
    up = uploading
    samples = (saved / "samples.npz").read_bytes()
    upload = uploaded(up, saved / "threefold", **{"samples.npz": samples})
    asked = {"request": {"samples": "samples.npz", "golden": 2}, "labels": ["candidate"]}
    job = converted(up, "converted", upload, **asked)
    assert (job["state"], job["version"]) == ("done", 1), job
    pushing.wait_state(up, "converted", 1, "ready", "serving")
    assert pushing.factor_of(up, "converted") == 3.0
    version = pushing.state(up, "converted", 1)
    assert version["has_contract"]
    assert {"conversion.json", "1/model.onnx"} <= {file["path"] for file in version["files"]}
    tools = " ".join(version["provenance"]["tools"])
    assert "tensorflow" in tools and "tf2onnx" in tools
    report = up.get(f"/api/conversions/{job['id']}/report")
    assert report["passed"]
    assert str(up.state) not in str(report) + str(job)
    assert not list((up.state / "conversions").iterdir())


def test_a_graph_that_reads_files_is_refused_before_it_is_run(uploading, saved):
    up = uploading
    job = converted(up, "reading", uploaded(up, saved / "reads"))
    assert (job["state"], job["fault"]["code"]) == ("failed", "dangerous_operator"), job
    assert job["fault"]["operator"] == "ReadFile"
    assert harness.request(f"{up.admin}/api/models/reading")[0] == 404
