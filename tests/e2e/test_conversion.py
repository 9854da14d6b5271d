"""A TensorFlow model, from its SavedModel to answers through the gateway."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
import numpy as np
import pytest
import repositories
import tritonclient.http

pytestmark = [pytest.mark.triton, pytest.mark.tensorflow, pytest.mark.slow]
PATIENCE = 600  # seconds; TensorFlow alone takes many to be imported on a busy machine
ANSWER = """
import sys
import numpy as np
import tensorflow as tf
folder, rows, answers = sys.argv[1:]
run = tf.saved_model.load(folder).signatures["serving_default"]
np.save(answers, run(x=tf.constant(np.load(rows)["x"]))["probabilities"].numpy())
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained network as a SavedModel, rows to calibrate on, and its answers to others."""
    folder = tmp_path_factory.mktemp("digits")
    run(sys.executable, harness.ROOT / "examples/conversion/make.py", "digits", folder)
    (folder / "savedmodel" / "labels.txt").write_text("\n".join(f"digit {n}" for n in range(10)))
    rows, answers = folder / "held_out.npz", folder / "answers.npy"
    run(sys.executable, "-c", ANSWER, folder / "savedmodel", rows, answers)
    return folder


def run(*words: object, expected: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done


def servegate(*words: object, expected: int = 0) -> "subprocess.CompletedProcess[str]":
    return run(harness.BIN / "servegate", *words, expected=expected)


def answers(up: harness.RunningGateway, model: str, x: np.ndarray) -> np.ndarray:
    """What the gateway answers to each row by itself, sixteen at a time."""

    def ask(row: np.ndarray) -> np.ndarray:
        with tritonclient.http.InferenceServerClient(up.http) as client:
            tensor = tritonclient.http.InferInput("x", [1, *row.shape], "FP32")
            tensor.set_data_from_numpy(row[None])
            return client.infer(model, [tensor]).as_numpy("probabilities")[0]

    with ThreadPoolExecutor(16) as pool:
        return np.stack(list(pool.map(ask, x)))


def test_a_converted_network_answers_through_the_gateway_as_tensorflow_does(
    made: Path, gateway: harness.RunningGateway, tmp_path: Path
) -> None:
    labelled = ("--labelled", made / "held_out.npz", "--samples", made / "samples.npz")
    where = ("--name", "converted", "--out", tmp_path / "models")
    servegate("convert", "onnx", made / "savedmodel", *where, *labelled)
    repositories.serve(gateway, tmp_path / "models")
    x, expected = np.load(made / "held_out.npz")["x"], np.load(made / "answers.npy")
    found = answers(gateway, "converted", x)
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()
    assert np.abs(found - expected).max() < 1e-5


def test_a_savedmodel_is_pushed_once_it_is_converted(
    made: Path, uploading: harness.RunningGateway
) -> None:
    where, saved = ("--admin-url", uploading.admin), made / "savedmodel"
    refused = servegate("model", "push", saved, "saved", *where, expected=2)
    assert "--convert" in refused.stderr
    more = ("--convert", "--samples", made / "samples.npz", "--wait", "--json")
    done = servegate("model", "push", saved, "saved", *where, *more)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["version"] == 1 and result["state"] in ("ready", "serving")
    shown = uploading.get("/api/models/saved/versions/1")
    x, expected = np.load(made / "held_out.npz")["x"], np.load(made / "answers.npy")
    found = answers(uploading, "saved", x[:20])
    paths = {file["path"] for file in shown["files"]}
    assert {"conversion.json", "conversion.html", "contract/contract.json"} <= paths
    assert shown["provenance"]["source"] == "savedmodel savedmodel"
    assert {"servegate", "tensorflow", "tf2onnx"} <= shown["provenance"]["tools"].keys()
    assert np.abs(found - expected[:20]).max() < 1e-5
    classes = {"kind": "classes", "values": "probabilities", "labels": "labels.txt"}
    assert shown["output_kinds"] == {"probabilities": classes}
    np.save(made / "row.npy", x[:1])
    ports = ("--url", f"http://{uploading.http}", "--admin-url", uploading.admin)
    told = servegate("infer", "saved", "--input", f"x=@{made / 'row.npy'}", "--top-k", 1, *ports)
    assert f"digit {expected[0].argmax()}" in told.stdout
