"""The main job: unmodified clients classify real digits through the gateway."""

import json
import urllib.request

import grpc
import harness
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2, service_pb2_grpc

pytestmark = [pytest.mark.triton, pytest.mark.slow]

CARD = json.loads((harness.ROOT / "model_repo/digits/model_card.json").read_text())
NAMES = {"1": "1", "2": "2", "stable": "1", "candidate": "2"}  # by number and by label
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


def answers(client_module, url, x, selector):
    """Every answer's top-1 for all rows, in batches of 50, and the versions that answered."""
    digits, versions = [], set()
    with client_module.InferenceServerClient(url) as client:
        for start in range(0, len(x), 50):
            rows = x[start : start + 50]
            tensor = client_module.InferInput("x", list(rows.shape), "FP32")
            tensor.set_data_from_numpy(rows)
            result = client.infer("digits", [tensor], model_version=selector)
            digits.append(result.as_numpy("probabilities").argmax(axis=1))
            reply = result.get_response()
            versions.add(reply["model_version"] if isinstance(reply, dict) else reply.model_version)
    return np.concatenate(digits), versions


def test_held_out_digits_get_the_accuracy_of_the_model_card(gateway, digits):
    x, y = digits.held_out()
    for module, url in ((tritonclient.http, gateway.http), (tritonclient.grpc, gateway.grpc)):
        for selector, version in NAMES.items():
            found, versions = answers(module, url, x, selector)
            stated = CARD["versions"][version]
            assert versions == {version}, (module, selector)
            assert int((found == y).sum()) == stated["held_out_correct"], (module, selector)
            assert len(y) == stated["held_out_rows"]


def test_answers_are_tritons_own_byte_for_byte(gateway, digits):
    rows = digits.held_out()[0][:7]
    tensor = tritonclient.http.InferInput("x", [7, 8, 8, 1], "FP32")
    tensor.set_data_from_numpy(rows)
    binary, head = tritonclient.http.InferenceServerClient.generate_request_body([tensor])
    bodies = ((SEVEN, {}), (binary, {"Inference-Header-Content-Length": str(head)}))
    request = service_pb2.ModelInferRequest(model_name="digits", id="case-1")
    request.inputs.add(name="x", datatype="FP32", shape=[7, 8, 8, 1])
    request.raw_input_contents.append(rows.tobytes())
    host, http, rpc, _ = gateway.get("/api/replicas")[0]["address"].split(":")
    for selector, version in NAMES.items():
        for body, headers in bodies:
            path = "/v2/models/digits/versions/{}/infer"
            direct, theirs = post(f"http://{host}:{http}{path.format(version)}", body, headers)
            through, ours = post(f"http://{gateway.http}{path.format(selector)}", body, headers)
            assert through == direct, (selector, headers)
            for name in ("content-type", "inference-header-content-length"):
                assert ours.get(name) == theirs.get(name), (selector, name)
        raw = []
        for target, named in ((gateway.grpc, selector), (f"{host}:{rpc}", version)):
            request.model_version = named
            with grpc.insecure_channel(target) as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                raw.append(call(request.SerializeToString()))
        assert raw[0] == raw[1], selector


def test_the_answer_says_which_version_and_why(gateway):
    _, by_label = post(f"http://{gateway.http}/v2/models/digits/versions/stable/infer", SEVEN)
    _, by_number = post(f"http://{gateway.http}/v2/models/digits/versions/2/infer", SEVEN)
    assert by_label["servegate-version"].startswith("1; by=label:stable; generation=")
    assert by_number["servegate-version"].startswith("2; by=number; generation=")


def test_health_metadata_config_and_statistics_are_served_on_both_protocols(gateway):
    with tritonclient.http.InferenceServerClient(gateway.http) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("digits") and client.is_model_ready("digits", "stable")
        assert not client.is_model_ready("digits", "9")
        assert client.get_server_metadata()["version"].startswith("2.")
        assert client.get_model_metadata("digits")["inputs"][0]["shape"] == [-1, 8, 8, 1]
        assert client.get_model_config("digits")["max_batch_size"] == 64
        assert client.get_inference_statistics("digits")["model_stats"][0]["name"] == "digits"
    with tritonclient.grpc.InferenceServerClient(gateway.grpc) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("digits") and client.is_model_ready("digits", "2")
        assert client.get_server_metadata().version.startswith("2.")
        assert client.get_model_metadata("digits").inputs[0].name == "x"
        assert client.get_model_config("digits").config.max_batch_size == 64
        assert client.get_inference_statistics("digits").model_stats[0].name == "digits"


def test_unknown_names_are_errors_of_tritons_shape_on_both_protocols(gateway):
    for path in ("nope", "digits/versions/9", "digits/versions/gone"):
        url = f"http://{gateway.http}/v2/models/{path}/infer"
        status, answer = harness.request(url, "POST", json.loads(SEVEN))
        assert status == 404 and "Request for unknown model" in answer["error"]
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(gateway.grpc))
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(service_pb2.ModelInferRequest(model_name="nope"))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert dict(error.value.trailing_metadata())["servegate-error"] == "unknown_model"


def test_metrics_count_calls_by_model_version_route_and_protocol(gateway):
    post(f"http://{gateway.http}/v2/models/digits/versions/2/infer", SEVEN)
    labels = {"model": "digits", "version": "2", "route": "number", "protocol": "http"}
    samples = [s for f in text_string_to_metric_families(gateway.metrics()) for s in f.samples]
    calls = [s for s in samples if s.name == "servegate_calls_total"]
    assert [s for s in calls if labels.items() <= s.labels.items() and s.value >= 1]
    names = {s.name for s in samples}
    assert "servegate_call_seconds_bucket" in names and "servegate_snapshot_generation" in names
    up = {s.labels["replica"] for s in samples if s.name == "servegate_replica_up"}
    assert up == {"local-0", "local-1"}


def post(url, body, headers=None):
    """The answer's body and headers (lower-case names)."""
    asked = urllib.request.Request(url, body, headers or {}, method="POST")
    with urllib.request.urlopen(asked) as answer:
        return answer.read(), {name.lower(): value for name, value in answer.headers.items()}
