"""Bodies of every protocol: what they say, and that a Triton and the gateway take them."""

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from refusals import refusal
from tritonclient.grpc import service_pb2 as pb

from serve.core.errors import Invalid
from serve.tensors import codec
from serve.tensors.codec import InferReply
from serve.tensors.datatypes import Array
from serve.wire import protobuf
from serve.wire.sequences import sequence_of
from serve.workbench.loadtest.bodies import path_of, payload_of
from serve.workbench.loadtest.plan import LaneProtocol, Payload
from serve.workbench.loadtest.sequences import IDS, MARKER_ID, sequence_body, sequence_marker

from ...triton.client_models import VALUES
from .conftest import Beside

JSON, BINARY = LaneProtocol.HTTP_JSON, LaneProtocol.HTTP_BINARY
GRPC, TF = LaneProtocol.GRPC, LaneProtocol.TFSERVING
TWO = {
    "x": np.array([[1.5, 2.0], [3.0, 4.0]], np.float32),
    "t": np.array([["a"], [b"\xc3\xa9"]], object),
}


def said(protocol: LaneProtocol, tensors: Mapping[str, Array], **more: Any) -> Any:
    return json.loads(payload_of(protocol, "m", "", tensors, {}, **more).body)


# --- what they say --------------------------------------------------------------------------------


def test_json_writes_tensors_out() -> None:
    made = payload_of(JSON, "m", "", TWO, {}, outputs=("y", "z"))
    assert dict(made.headers) == {"Content-Type": "application/json"}
    assert json.loads(made.body) == {
        "inputs": [
            {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1.5, 2.0, 3.0, 4.0]},
            {"name": "t", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "é"]},
        ],
        "outputs": [{"name": "y"}, {"name": "z"}],
    }


def test_what_json_cannot_say_is_refused_with_a_way_out() -> None:
    for array, datatype in (
        (np.zeros(1, np.float16), "FP16"),
        (np.zeros(1, np.float32), "BF16"),
        (np.array([np.nan], np.float32), "FP32"),
        (np.array([b"\xff"], object), "BYTES"),
    ):
        error = refusal(Invalid, payload_of, JSON, "m", "", {"x": array}, {"x": datatype})
        assert "http-binary" in error.try_this


def test_binary_bodies_say_where_their_head_ends() -> None:
    made = payload_of(BINARY, "m", "", TWO, {}, outputs=("y",))
    length = int(dict(made.headers)["Inference-Header-Content-Length"])
    head = json.loads(made.body[:length])
    assert head["outputs"] == [{"name": "y", "parameters": {"binary_data": True}}]
    assert head["parameters"] == {"binary_data_output": True}
    assert made.body[length:] == TWO["x"].tobytes() + b"\1\0\0\0a\2\0\0\0\xc3\xa9"


def test_grpc_bodies_name_the_model_the_version_and_the_outputs() -> None:
    made = payload_of(GRPC, "m", "stable", TWO, {}, outputs=("y",))
    message = pb.ModelInferRequest.FromString(made.body)
    assert (message.model_name, message.model_version) == ("m", "stable")
    assert [each.name for each in message.outputs] == ["y"]
    assert message.raw_input_contents[0] == TWO["x"].tobytes()
    assert made == payload_of(LaneProtocol.GRPC_STREAM, "m", "stable", TWO, {}, outputs=("y",))


def test_rows_are_values_of_one_input_and_objects_of_several() -> None:
    assert said(TF, {"x": TWO["x"]}) == {"instances": [[1.5, 2.0], [3.0, 4.0]]}
    assert said(TF, TWO) == {
        "instances": [{"x": [1.5, 2.0], "t": ["a"]}, {"x": [3.0, 4.0], "t": ["é"]}]
    }
    assert said(TF, {"x": np.array([b"\xff"], object)}) == {"instances": [{"b64": "/w=="}]}


def test_tensors_without_common_rows_are_no_rows() -> None:
    for tensors in (
        {"x": np.zeros((), np.float32)},
        {"x": np.zeros(2), "y": np.zeros(3)},
        {"x": np.zeros(0)},
    ):
        assert "as rows" in refusal(Invalid, payload_of, TF, "m", "", tensors, {}).what


def test_rows_are_counted_unless_they_are_given() -> None:
    for more, rows in (({}, 2), ({"expected": (1, 0, 1)}, 3), ({"rows": 5, "expected": (1,)}, 5)):
        assert payload_of(GRPC, "m", "", TWO, {}, **more).rows == rows


def test_paths_name_the_model_and_the_version() -> None:
    paths = {
        (JSON, ""): "/v2/models/a%20b/infer",
        (BINARY, "3"): "/v2/models/a%20b/versions/3/infer",
        (GRPC, "3"): "/inference.GRPCInferenceService/ModelInfer",
        (LaneProtocol.GRPC_STREAM, ""): "/inference.GRPCInferenceService/ModelStreamInfer",
        (TF, ""): "/v1/models/a%20b:predict",
        (TF, "3"): "/v1/models/a%20b/versions/3:predict",
        (TF, "stable"): "/v1/models/a%20b/labels/stable:predict",
    }
    assert {asked: path_of(asked[0], "a b", asked[1]) for asked in paths} == paths


# --- ids of sequences -----------------------------------------------------------------------------

WITH_IDS = [each for each in LaneProtocol if each is not LaneProtocol.TFSERVING]
NUMBERS = (0, 1, 2**40, IDS - 1)


def payload(protocol: LaneProtocol) -> Payload:
    return payload_of(protocol, "m", "", {"x": np.zeros((1, 2), np.float32)}, {}, sequences=True)


def read(protocol: LaneProtocol, made: Payload, body: bytes) -> str:
    """The id as the gateway reads it."""
    if protocol in (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM):
        return protobuf.peek(body, infer=True).sequence
    length = dict(made.headers).get("Inference-Header-Content-Length", len(body))
    return sequence_of(body[: int(length)])


@pytest.mark.parametrize("protocol", WITH_IDS)
def test_every_id_is_as_long_as_the_marker(protocol: LaneProtocol) -> None:
    made, marker = payload(protocol), sequence_marker(protocol)
    for body in (made.body, made.first, made.last, made.only):
        assert body.count(marker) == 1
        filled = [sequence_body(body, marker, protocol, number) for number in NUMBERS]
        assert {len(each) for each in filled} == {len(made.body)}
        ids = [read(protocol, made, each) for each in filled]
        assert ids == [f"n{10**15 + number}" for number in NUMBERS]


@pytest.mark.parametrize("protocol", WITH_IDS)
def test_numbers_begin_again_before_they_reach_the_marker(protocol: LaneProtocol) -> None:
    made, marker = payload(protocol), sequence_marker(protocol)
    last, again = (sequence_body(made.body, marker, protocol, IDS + more) for more in (-1, 0))
    assert read(protocol, made, last) == f"n{MARKER_ID - 1}"
    assert again == sequence_body(made.body, marker, protocol, 0)


def test_flags_say_where_in_its_sequence_a_call_is() -> None:
    for name in ("body", "first", "last", "only"):
        flags = (name in ("first", "only"), name in ("last", "only"))
        for made in (payload(JSON), payload(BINARY)):
            length = int(dict(made.headers).get("Inference-Header-Content-Length", len(made.body)))
            found = json.loads(getattr(made, name)[:length])["parameters"]
            assert (found["sequence_start"], found["sequence_end"]) == flags
        message = pb.ModelInferRequest.FromString(getattr(payload(GRPC), name))
        found = message.parameters
        assert (found["sequence_start"].bool_param, found["sequence_end"].bool_param) == flags


def test_tensorflow_serving_has_no_sequences() -> None:
    with pytest.raises(Invalid, match="does not support sequences"):
        payload(LaneProtocol.TFSERVING)
    with pytest.raises(Invalid, match="http-binary"):
        sequence_marker(LaneProtocol.TFSERVING)


# --- a real Triton, and the gateway in front of it ------------------------------------------------


def answered(protocol: LaneProtocol, where: Beside, side: int, made: Payload) -> InferReply:
    """What Triton (side 0) or the gateway (side 1) answers."""
    path = path_of(protocol, "mirror", "")
    if protocol is GRPC:
        with grpc.insecure_channel(where.grpc[side]) as channel:
            return codec.read_grpc_reply(channel.unary_unary(path)(made.body, timeout=30.0))
    with closing(http.client.HTTPConnection(where.http[side], timeout=30.0)) as connection:
        connection.request("POST", path, made.body, dict(made.headers))
        answer = connection.getresponse()
        length = answer.headers.get("Inference-Header-Content-Length")
        came = answer.read()
    assert answer.status == 200, came
    return codec.read_http_reply(came, int(length) if length else None)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("protocol", [JSON, BINARY, GRPC])
def test_every_datatype_comes_back(beside: Beside, protocol: LaneProtocol, side: int) -> None:
    left_out = ("FP16", "BF16") if protocol is JSON else ()
    tensors = {
        name: array.astype(np.float32) if name == "BF16" else array
        for name, array in VALUES.items()
        if name not in left_out
    }
    outputs = tuple(f"out_{name}" for name in tensors)
    made = payload_of(
        protocol, "mirror", "", tensors, {name: name for name in tensors}, outputs=outputs
    )
    reply = answered(protocol, beside, side, made)
    assert set(reply.outputs) == set(outputs)
    for name, array in tensors.items():
        wanted = array.astype(ml_dtypes.bfloat16).astype("f4") if name == "BF16" else array
        np.testing.assert_array_equal(reply.outputs[f"out_{name}"], wanted)
