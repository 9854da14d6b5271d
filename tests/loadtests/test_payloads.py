"""The requests of the benchmarks are what Triton's own messages say."""

import json

import pytest
from tritonclient.grpc import service_pb2

from loadtests.bench import payloads


@pytest.mark.parametrize("size", [64, 16 << 10, 602112])
def test_a_grpc_message_is_read_by_tritons_protobuf_classes(size: int) -> None:
    framed = payloads.grpc_message(size, "null")
    message = service_pb2.ModelInferRequest.FromString(framed[5:])
    assert framed[:5] == b"\0" + len(framed[5:]).to_bytes(4, "big")
    assert message.model_name == "null"
    (x,) = message.inputs
    assert (x.name, x.datatype, list(x.shape)) == ("x", "FP32", [1, size // 4])
    assert [len(raw) for raw in message.raw_input_contents] == [size]


def test_the_cheap_grpc_answer_is_read_by_tritons_protobuf_classes() -> None:
    answer = service_pb2.ModelInferResponse.FromString(payloads.grpc_answer()[5:])
    assert (answer.model_name, answer.model_version) == ("null", "1")
    assert len(answer.raw_output_contents[0]) == 16


def test_tensors_in_json_and_behind_it_have_the_size_that_they_say() -> None:
    request = payloads.binary_tensor(64)
    length = int(dict(request.fields)["Inference-Header-Content-Length"])
    tensor = json.loads(request.body[:length])["inputs"][0]
    assert tensor["parameters"]["binary_data_size"] == len(request.body) - length == 64
    (tensor,) = json.loads(payloads.json_tensor(64).body)["inputs"]
    assert len(tensor["data"]) == 16 == tensor["shape"][1]
