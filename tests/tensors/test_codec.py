"""Infer messages over HTTP and gRPC, checked against tritonclient as an independent one."""

import json

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from refusals import refusal
from tritonclient.grpc import service_pb2

from serve.core.errors import Invalid, ServegateError
from serve.tensors.codec import (
    MalformedReply,
    grpc_request,
    http_request,
    read_grpc_reply,
    read_http_reply,
)
from serve.tensors.datatypes import DATATYPES, to_json, to_raw
from serve.tensors.random_inputs import random_tensor

KNOWN_TO_NUMPY = [each for each in DATATYPES if each != "BF16"]


def tensors(datatypes=DATATYPES, shape=(2, 3)):
    rng = np.random.default_rng(11)
    return {f"t_{datatype}": random_tensor(datatype, shape, rng) for datatype in datatypes}


def reply(*outputs, tail=b"", **head):
    """A reply body and its head's length; what `outputs` say goes into the head as it is."""
    head = {"model_name": "m", "model_version": "3", "outputs": list(outputs)} | head
    text = json.dumps(head).encode()
    return text + tail, len(text)


def binary(name, datatype, array):
    raw = to_raw(array, datatype)
    parameters = {"binary_data_size": len(raw)}
    row = {"name": name, "datatype": datatype, "shape": list(array.shape), "parameters": parameters}
    return row, raw


def grpc_reply(outputs):
    message = service_pb2.ModelInferResponse(model_name="m", model_version="3")
    for name, (datatype, array) in outputs.items():
        message.outputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_output_contents.append(to_raw(array, datatype))
    return message


def test_an_http_request_is_what_tritonclient_would_send():
    inputs = tensors(KNOWN_TO_NUMPY)
    theirs = []
    for name, array in inputs.items():
        each = triton_http.InferInput(name, list(array.shape), name.removeprefix("t_"))
        theirs.append(each.set_data_from_numpy(array, binary_data=True))
    body, head_length = triton_http.InferenceServerClient.generate_request_body(theirs)
    ours = http_request(inputs)
    assert json.loads(ours.body[: ours.head_length]) == json.loads(body[:head_length])
    assert ours.body[ours.head_length :] == body[head_length:]
    assert ours.headers["Inference-Header-Content-Length"] == str(ours.head_length)


def test_tritonclient_reads_a_binary_reply_as_we_do():
    rows, raws = zip(
        *(binary(name, name[2:], array) for name, array in tensors(KNOWN_TO_NUMPY).items()),
        strict=True,
    )
    body, length = reply(*rows, tail=b"".join(raws))
    ours = read_http_reply(body, length)
    theirs = triton_http.InferenceServerClient.parse_response_body(body, header_length=length)
    assert (ours.model, ours.version) == ("m", "3")
    for name, array in ours.outputs.items():
        assert (array == theirs.as_numpy(name)).all()
        assert array.shape == theirs.as_numpy(name).shape
        assert ours.datatypes[name] == name[2:]


def test_json_outputs_and_binary_ones_may_stand_side_by_side():
    expected = tensors()
    rows, tail = [], b""
    for number, (name, array) in enumerate(expected.items()):
        row, raw = binary(name, name[2:], array)
        if number % 2:
            del row["parameters"]
            row["data"] = np.array(to_json(array), dtype=object).ravel().tolist()
            raw = b""
        rows.append(row)
        tail += raw
    outputs = read_http_reply(*reply(*rows, tail=tail)).outputs
    assert list(outputs) == list(expected)
    assert all((outputs[name] == array).all() for name, array in expected.items())
    body, _ = reply({"name": "y", "datatype": "BYTES", "shape": [2], "data": ["a", "ü"]})
    assert read_http_reply(body).outputs["y"].tolist() == [b"a", "ü".encode()], "all is JSON"


def test_bfloat16_must_be_said_and_travels_in_two_bytes_per_value():
    values = np.array([[1.0, 0.5]], dtype=np.float32)
    request = http_request({"x": values}, {"x": "BF16"})
    head = json.loads(request.body[: request.head_length])
    assert head["inputs"][0]["datatype"] == "BF16"
    assert request.body[request.head_length :] == bytes.fromhex("803f003f")


def test_a_grpc_request_is_what_tritonclient_would_send():
    inputs = tensors(KNOWN_TO_NUMPY)
    ours = service_pb2.ModelInferRequest.FromString(
        grpc_request("digits", inputs, version="stable")
    )
    assert (ours.model_name, ours.model_version) == ("digits", "stable")
    for row, raw in zip(ours.inputs, ours.raw_input_contents, strict=True):
        theirs = triton_grpc.InferInput(row.name, list(row.shape), row.datatype)
        theirs.set_data_from_numpy(inputs[row.name])
        assert theirs._get_tensor() == row
        assert theirs._get_content() == raw


def test_a_grpc_reply_is_read_as_tritonclient_reads_it():
    message = grpc_reply({name: (name[2:], array) for name, array in tensors().items()})
    ours = read_grpc_reply(message.SerializeToString())
    theirs = triton_grpc.InferResult(message)
    assert (ours.model, ours.version) == ("m", "3")
    for name, array in ours.outputs.items():
        assert (array == theirs.as_numpy(name).astype(array.dtype)).all()


ROW = {"name": "y", "datatype": "FP32", "shape": [2]}


def test_a_broken_http_reply_says_what_is_wrong_with_it() -> None:
    for body, length, why in (
        (b"", None, "not JSON"),
        (b"<html>", None, "not JSON"),
        (b"\xff\xfe", None, "not JSON"),
        (b"[" * 100_000, None, "not JSON"),
        (b"[]", None, "'outputs' is missing"),
        (b"{}", 3, "head of 3 bytes is longer than the body of 2"),
        (b"{}", -1, "head of -1 bytes"),
        (*reply(outputs={}), "'outputs' is missing or not of type list"),
        (*reply(7), "'name' is missing"),
        (*reply({"datatype": "FP32", "shape": [1], "data": [1]}), "'name' is missing"),
        (*reply({"name": "y", "shape": [1], "data": [1]}), "'datatype' of 'y' is missing"),
        (*reply({"name": "y", "datatype": "FP32", "data": [1]}), "'shape' of 'y' is missing"),
        (*reply(ROW), "'data' of 'y' is missing"),
        (*reply(ROW | {"parameters": 3}), "'data' of 'y' is missing"),
        (*reply(ROW | {"datatype": "FP8", "data": [1, 2]}), "unknown datatype 'FP8'"),
        (*reply(ROW | {"data": [1, "2"]}), "not a value of FP32"),
        (*reply(ROW | {"data": [1, 2]}, ROW | {"data": [1, 2]}), "' twice"),
        (*reply(ROW | {"data": [1, 2]}, tail=b"x"), "1 bytes follow its last output"),
    ):
        error = refusal(MalformedReply, read_http_reply, body, length)
        assert why in error.why, (body, length)
    for shape, data in (
        ([-1], [1]),
        ([True], [1]),
        (["2"], [1]),
        ([1] * 40, [1]),
        ([0, 10**30], []),
    ):
        row = ROW | {"shape": shape, "data": data}
        error = refusal(MalformedReply, read_http_reply, *reply(row))
        assert f"has the shape {shape}" in error.why, shape
    for size, tail, why in (
        (8, b"1234567", "7 are left"),
        (8, b"123456789", "1 bytes follow"),
        (7, b"1234567", "needs 8"),
        (-1, b"", "binary_data_size -1"),
        ("8", b"", "binary_data_size '8'"),
    ):
        row = ROW | {"parameters": {"binary_data_size": size}}
        error = refusal(MalformedReply, read_http_reply, *reply(row, tail=tail))
        assert why in error.why, (size, tail)


def test_a_broken_grpc_reply_says_what_is_wrong_with_it() -> None:
    for change, why in (
        (lambda message: message.raw_output_contents.pop(), "describes 2 outputs"),
        (lambda message: message.outputs.pop(), "describes 1 outputs"),
        (lambda message: message.raw_output_contents.__setitem__(0, b"123"), "has 3 bytes"),
        (lambda message: message.outputs[0].shape.__setitem__(0, -1), "has the shape [-1]"),
        (lambda message: setattr(message.outputs[1], "name", "a"), "' twice"),
    ):
        one = np.ones(1, dtype=np.float32)
        message = grpc_reply({"a": ("FP32", one), "b": ("FP32", one)})
        change(message)
        error = refusal(MalformedReply, read_grpc_reply, message.SerializeToString())
        assert why in error.why, change
    assert "not a ModelInferResponse" in str(
        refusal(MalformedReply, read_grpc_reply, b"\xff\xff\xff")
    )


def test_a_reply_cut_anywhere_is_refused_and_never_misread():
    rows, raws = zip(*(binary(n, n[2:], a) for n, a in tensors().items()), strict=True)
    body, length = reply(*rows, tail=b"".join(raws))
    for end in range(0, len(body), 7):
        with pytest.raises(MalformedReply):
            read_http_reply(body[:end], min(length, end))


def test_the_fault_of_a_reply_is_not_the_callers_and_that_of_an_input_is():
    assert not issubclass(MalformedReply, Invalid)
    assert issubclass(MalformedReply, ServegateError)
    with pytest.raises(Invalid, match="tensor 'x' is a numpy array of complex128"):
        http_request({"x": np.zeros(1, dtype=complex)})
    with pytest.raises(Invalid, match="tensor 'x' has the unknown datatype 'FP8'"):
        grpc_request("m", {"x": np.zeros(1)}, datatypes={"x": "FP8"})
