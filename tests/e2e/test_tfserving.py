"""Clients written for TensorFlow Serving classify real digits through the gateway, unchanged."""

import json
import struct
import urllib.error
import urllib.request

import grpc
import harness
import numpy as np
import pytest
import tfserving_bytes as tf
import tritonclient.http

pytestmark = pytest.mark.triton

CARD = json.loads((harness.ROOT / "model_repo/digits/model_card.json").read_text())
SEVEN = json.loads((harness.ROOT / "examples/digits/seven.json").read_text())["inputs"][0]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
NAMES = {
    "": {"1", "2"},
    "/versions/1": {"1"},
    "/versions/2": {"2"},
    "/labels/stable": {"1"},
    "/labels/candidate": {"2"},
}


def ask(url: str, document: object = None) -> tuple[int, object, dict[str, str]]:
    """Status, document and headers; a POST when there is something to send."""
    data = None if document is None else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), dict(error.headers)


def by_kserve(gateway, rows, version):
    """What Triton's own client gets from the same version."""
    with tritonclient.http.InferenceServerClient(gateway.http) as client:
        tensor = tritonclient.http.InferInput("x", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        return client.infer("digits", [tensor], model_version=version).as_numpy("probabilities")


def test_rows_and_columns_get_the_predictions_of_the_version(gateway, digits):
    rows = digits.held_out()[0][:20]
    for part, versions in NAMES.items():
        url = f"http://{gateway.http}/v1/models/digits{part}:predict"
        for body, key in (
            ({"instances": rows.tolist()}, "predictions"),
            ({"inputs": {"x": rows.tolist()}}, "outputs"),
        ):
            status, answer, headers = ask(url, body)
            version = headers["servegate-version"].split(";")[0]
            assert (status, set(answer)) == (200, {key}) and version in versions, part
            wanted = by_kserve(gateway, rows, version)
            assert np.array_equal(np.array(answer[key], np.float32), wanted), (part, key)


def test_classify_gives_the_labels_with_their_scores(gateway):
    url = f"http://{gateway.http}/v1/models/digits/labels/stable"
    _, classes, _ = ask(f"{url}:classify", {"examples": [{"x": SEVEN["data"]}]})
    rows = np.array(SEVEN["data"], np.float32).reshape(1, 8, 8, 1)
    _, predicted, _ = ask(f"{url}:predict", {"instances": rows.tolist()})
    [scores] = predicted["predictions"]
    assert classes == {"results": [[[str(n), score] for n, score in enumerate(scores)]]}
    assert int(np.argmax(scores)) == 7
    status, said, _ = ask(f"{url}:regress", {"examples": [{"x": SEVEN["data"]}]})
    assert status == 400 and "[batch_size, 1] but got [1,10]" in said["error"]


def test_status_and_metadata_have_the_documented_shapes(gateway):
    base = f"http://{gateway.http}/v1/models/digits"

    def available(version: str) -> dict[str, object]:
        told = {"error_code": "OK", "error_message": ""}
        return {"version": version, "state": "AVAILABLE", "status": told}

    both = {"model_version_status": [available("2"), available("1")]}
    assert ask(base)[:2] == (200, both)
    for part, version in (("/versions/2", "2"), ("/labels/stable", "1")):
        assert ask(base + part)[:2] == (200, {"model_version_status": [available(version)]})
        _, told, _ = ask(f"{base}{part}/metadata")
        assert told["model_spec"] == {"name": "digits", "signature_name": "", "version": version}
        [signature] = told["metadata"]["signature_def"]["signature_def"].values()
        dims = [one["size"] for one in signature["inputs"]["x"]["tensor_shape"]["dim"]]
        assert (signature["inputs"]["x"]["dtype"], dims) == ("DT_FLOAT", ["-1", "8", "8", "1"])
        assert set(signature["outputs"]) == {"probabilities"}


def test_errors_are_those_that_clients_know(gateway):
    base = f"http://{gateway.http}/v1/models"
    seven = {"instances": [SEVEN["data"]]}
    assert ask(f"{base}/half:predict", {"instances": [1.0, 5.0]})[:2] == (
        404,
        {"error": "Servable not found for request: Latest(half)"},
    )
    assert ask(f"{base}/digits/versions/9:predict", seven)[:2] == (
        404,
        {"error": "Servable not found for request: Specific(digits, 9)"},
    )
    status, said, _ = ask(f"{base}/digits:predict", seven)
    assert status == 400 and "unexpected shape for input 'x'" in said["error"]


def test_a_grpc_client_gets_the_same_probabilities(gateway):
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
            assert np.array_equal(found, by_kserve(gateway, rows, version)[0])
        with pytest.raises(grpc.RpcError) as error:
            call(tf.predict_request(tf.spec("nope"), x=tensor))
    assert error.value.details() == "Servable not found for request: Latest(nope)"


def test_a_label_moves_to_a_ready_version_only(gateway):
    labels = f"{gateway.admin}/api/models/digits/labels/moving"
    assert harness.request(labels, "PUT", {"version": 9})[0] == 404
    url = f"http://{gateway.http}/v1/models/digits/labels/moving"
    status, said, _ = ask(url)
    assert (status, said) == (400, {"error": "Unrecognized servable version label: moving"})
    seen = []
    for version in (1, 2):
        gateway.put("/api/models/digits/labels/moving", {"version": version})
        assert harness.request(labels, "PUT", {"version": 9})[0] == 404
        _, told, _ = ask(url)
        seen.append(told["model_version_status"][0]["version"])
    assert seen == ["1", "2"]
    assert harness.request(labels, "DELETE")[0] == 200
