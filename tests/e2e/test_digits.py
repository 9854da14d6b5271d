"""The main job: unmodified clients of KServe and of TensorFlow Serving classify real digits.

An evaluation through the gateway itself agrees with what they get.
"""

import csv
import json
import struct
import urllib.request

import grpc
import harness
import numpy as np
import pytest
import tfserving_bytes as tf
import tritonclient.grpc
import tritonclient.http

pytestmark = pytest.mark.triton

CARD = json.loads((harness.ROOT / "model_repo/digits/model_card.json").read_text())
SEVEN = json.loads((harness.ROOT / "examples/digits/seven.json").read_text())["inputs"][0]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
NAMES = {"1": "1", "2": "2", "stable": "1", "candidate": "2"}  # by number and by label
PARTS = {
    "": {"1", "2"},
    "/versions/1": {"1"},
    "/labels/candidate": {"2"},
}


def probabilities(module, url, rows, selector):
    """The scores of some rows, and the version that answered."""
    with module.InferenceServerClient(url) as client:
        tensor = module.InferInput("x", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        result = client.infer("digits", [tensor], model_version=selector)
        reply = result.get_response()
        version = reply["model_version"] if isinstance(reply, dict) else reply.model_version
        return result.as_numpy("probabilities"), version


@pytest.mark.slow
def test_held_out_digits_get_the_accuracy_of_the_model_card(gateway, digits):
    x, y = digits.held_out()
    for module, url in ((tritonclient.http, gateway.http), (tritonclient.grpc, gateway.grpc)):
        for selector, version in NAMES.items():
            right = 0
            for start in range(0, len(x), 50):
                rows = slice(start, start + 50)
                scores, answered = probabilities(module, url, x[rows], selector)
                assert answered == version, (module, selector)
                right += int((scores.argmax(axis=1) == y[rows]).sum())
            stated = CARD["versions"][version]
            assert (right, len(y)) == (stated["held_out_correct"], stated["held_out_rows"])


def test_clients_of_tensorflow_serving_get_the_predictions_of_the_version(gateway, digits):
    rows = digits.held_out()[0][:20]
    for part, versions in PARTS.items():
        url = f"http://{gateway.http}/v1/models/digits{part}:predict"
        for body, key in (
            ({"instances": rows.tolist()}, "predictions"),
            ({"inputs": {"x": rows.tolist()}}, "outputs"),
        ):
            asked = urllib.request.Request(url, json.dumps(body).encode())
            with urllib.request.urlopen(asked) as reply:
                answer = json.loads(reply.read())
                version = reply.headers["servegate-version"].split(";")[0]
            assert set(answer) == {key} and version in versions, part
            wanted, _ = probabilities(tritonclient.http, gateway.http, rows, version)
            assert np.array_equal(np.array(answer[key], np.float32), wanted), (part, key)


def test_a_grpc_client_of_tensorflow_serving_gets_the_same_probabilities(gateway):
    data = struct.pack("<64f", *SEVEN["data"])
    tensor = tf.tensor(tf.FLOAT, [1, 8, 8, 1], tf.sized(4, data))
    rows = np.frombuffer(data, np.float32).reshape(1, 8, 8, 1)
    with grpc.insecure_channel(gateway.grpc) as channel:
        call = channel.unary_unary(PREDICT)
        for spec, version in (
            (tf.spec("digits", version=2), "2"),
            (tf.spec("digits", label="stable"), "1"),
        ):
            answer = call(tf.predict_request(spec, x=tensor))
            output = tf.read(tf.mapped(answer, 1)["probabilities"])
            found = np.frombuffer(output[5][0], np.float32)
            wanted, _ = probabilities(tritonclient.http, gateway.http, rows, version)
            assert np.array_equal(found, wanted[0])


@pytest.fixture
def pictures(digits, tmp_path):
    folder = tmp_path / "held-out"
    grey, labels = digits.pictures()
    for row in digits.held_out_rows():
        path = folder / str(labels[row]) / f"{row:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(digits.png(grey[row]))
    return folder


@pytest.mark.slow
def test_both_versions_have_the_accuracy_of_the_model_card_and_a_missed_gate_is_status_7(
    gateway, pictures, tmp_path
):
    env = {"SERVEGATE_ADMIN_URL": gateway.admin, "SERVEGATE_STATE": str(gateway.state)}

    def evaluate(*words):
        return harness.servegate("eval", *words, env=env)

    words = ["digits", "--dataset", str(pictures), "-a", "stable", "-b", "candidate"]
    words += ["--grpc", "--batch", "16", "--json"]
    done = evaluate("run", *words, "--gate", "accuracy(b)>=0.5")
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout.splitlines()[-1])["evaluation"]
    exported = evaluate("export", page["id"], "--out", str(tmp_path / "rows.csv"))
    assert exported.returncode == 0, exported.stderr
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert (page["state"], page["done"], page["failed"], len(rows)) == ("done", 599, 0, 599)
    for name, version in (("a", "1"), ("b", "2")):
        stated = CARD["versions"][version]["held_out_correct"]
        assert sum(row[f"predicted_{name}"] == row["label"] for row in rows) == stated
        assert page["report"][name]["accuracy"]["value"] == pytest.approx(stated / 599)
    missed = evaluate("gate", page["id"], "accuracy(a)>0.5", "accuracy(b).low>0.9999")
    assert missed.returncode == 7
    assert "accuracy(b).low>0.9999" in missed.stderr
