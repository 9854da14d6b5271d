"""The main job: unmodified clients of KServe and of TensorFlow Serving classify real digits."""

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
