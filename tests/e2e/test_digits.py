"""The main job: unmodified clients classify real digits through the gateway."""

import json
import socket
import urllib.request
from functools import partial

import grpc
import harness
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2, service_pb2_grpc

pytestmark = pytest.mark.triton

CARD = json.loads((harness.ROOT / "model_repo/digits/model_card.json").read_text())
NAMES = [("1", "1"), ("2", "2"), ("stable", "1"), ("candidate", "2")]


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


@pytest.mark.parametrize(("selector", "version"), NAMES)
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_held_out_digits_get_the_accuracy_of_the_model_card(
    gateway, digits, protocol, selector, version
):
    x, y = digits.held_out()
    module = tritonclient.http if protocol == "http" else tritonclient.grpc
    url = gateway.http if protocol == "http" else gateway.grpc
    found, versions = answers(module, url, x, selector)
    stated = CARD["versions"][version]
    assert versions == {version}
    assert int((found == y).sum()) == stated["held_out_correct"]
    assert len(y) == stated["held_out_rows"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_http_answer_is_tritons_own_byte_for_byte(gateway, version):
    body = (harness.ROOT / "examples/digits/seven.json").read_bytes()
    address = gateway.get("/api/replicas")[0]["address"].split(":")
    path = f"/v2/models/digits/versions/{version}/infer"
    through, _ = post(f"http://{gateway.http}{path}", body)
    direct, _ = post(f"http://{address[0]}:{address[1]}{path}", body)
    assert through == direct


@pytest.mark.parametrize("selector", ["1", "2", "stable"])
def test_a_binary_answer_is_tritons_own_byte_for_byte(gateway, digits, selector):
    x, _ = digits.held_out()
    tensor = tritonclient.http.InferInput("x", [7, 8, 8, 1], "FP32")
    tensor.set_data_from_numpy(x[:7])
    body, head = tritonclient.http.InferenceServerClient.generate_request_body([tensor])
    headers = {"Inference-Header-Content-Length": str(head)}
    address = gateway.get("/api/replicas")[0]["address"].split(":")
    number = {"stable": "1"}.get(selector, selector)
    direct, told = post(
        f"http://{address[0]}:{address[1]}/v2/models/digits/versions/{number}/infer", body, headers
    )
    through, said = post(
        f"http://{gateway.http}/v2/models/digits/versions/{selector}/infer", body, headers
    )
    assert through == direct
    for name in ("content-type", "inference-header-content-length"):
        assert said[name] == told[name]


@pytest.mark.parametrize("selector", ["1", "2", "candidate"])
def test_a_grpc_answer_is_tritons_own_byte_for_byte(gateway, digits, selector):
    x, _ = digits.held_out()
    request = service_pb2.ModelInferRequest(model_name="digits", id="case-1")
    request.inputs.add(name="x", datatype="FP32", shape=[5, 8, 8, 1])
    request.raw_input_contents.append(x[:5].tobytes())
    _, _, rpc, _ = gateway.get("/api/replicas")[0]["address"].split(":")
    raw = []
    for target, version in (
        (gateway.grpc, selector),
        (f"127.0.0.1:{rpc}", {"candidate": "2"}.get(selector, selector)),
    ):
        request.model_version = version
        with grpc.insecure_channel(target) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            raw.append(call(request.SerializeToString()))
    assert raw[0] == raw[1]


def test_the_answer_says_which_version_and_why(gateway, digits):
    body = (harness.ROOT / "examples/digits/seven.json").read_bytes()
    _, by_label = post(f"http://{gateway.http}/v2/models/digits/versions/stable/infer", body)
    _, by_number = post(f"http://{gateway.http}/v2/models/digits/versions/2/infer", body)
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
    body = (harness.ROOT / "examples/digits/seven.json").read_bytes()
    for path in ("nope", "digits/versions/9", "digits/versions/gone"):
        status, answer = harness.request(
            f"http://{gateway.http}/v2/models/{path}/infer", "POST", json.loads(body)
        )
        text = answer["error"] if isinstance(answer, dict) else answer
        assert status == 404 and "Request for unknown model" in text
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(gateway.grpc))
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(service_pb2.ModelInferRequest(model_name="nope"))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert dict(error.value.trailing_metadata())["servegate-error"] == "unknown_model"


def test_metrics_count_calls_by_model_version_route_and_protocol(gateway):
    body = (harness.ROOT / "examples/digits/seven.json").read_bytes()
    post(f"http://{gateway.http}/v2/models/digits/versions/2/infer", body)
    labels = {"model": "digits", "version": "2", "route": "number", "protocol": "http"}
    samples = [s for f in text_string_to_metric_families(gateway.metrics()) for s in f.samples]
    calls = [s for s in samples if s.name == "servegate_calls_total"]
    assert [s for s in calls if labels.items() <= s.labels.items() and s.value >= 1]
    names = {s.name for s in samples}
    assert "servegate_call_seconds_bucket" in names and "servegate_snapshot_generation" in names
    up = {s.labels["replica"] for s in samples if s.name == "servegate_replica_up"}
    assert up == {"local-0", "local-1"}


def test_a_worker_holds_no_database_no_onnx_no_tensorflow_and_no_templates(gateway):
    loaded = set()
    for number in range(2):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(gateway.state / f"worker-{number}.sock"))
            connection.sendall(b"GET /modules HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(partial(connection.recv, 65536), b""))
        names = answer.partition(b"\r\n\r\n")[2].decode().split()
        assert "serve.proxy.gateway" in names
        loaded |= {name.partition(".")[0] for name in names}
    forbidden = {"sqlalchemy", "alembic", "onnx", "onnxruntime", "tensorflow", "jinja2", "grpc"}
    forbidden |= {"aiohttp", "numpy", "tritonclient"}
    assert not loaded & forbidden


def post(url, body, headers=None):
    """The answer's body and headers (lower-case names)."""
    asked = urllib.request.Request(url, body, headers or {}, method="POST")
    with urllib.request.urlopen(asked) as answer:
        return answer.read(), {name.lower(): value for name, value in answer.headers.items()}
