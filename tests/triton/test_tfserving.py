"""TensorFlow Serving's clients before a real Triton: every datatype, and what it refuses."""

from __future__ import annotations

import json
import struct
import urllib.error
import urllib.request
from typing import Any

import grpc
import pytest
import tfserving_bytes as tf
from refusals import refusal

from serve.wire.tfserving_messages import messages

from .conftest import Beside

pytestmark = [pytest.mark.triton, pytest.mark.slow]

NUMBERS: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, (1 << 32) - 1],
    "UINT64": [0, (1 << 64) - 1],
    "INT8": [-128, 127],
    "INT16": [-(1 << 15), 7],
    "INT32": [-(1 << 31), 7],
    "INT64": [-(1 << 63), 7],
    "FP16": [-0.5, 65504.0],
    "BF16": [-1.5, 3.0],
    "FP32": [0.1, 1e-40],
    "FP64": [0.1, 5e-324],
    "BYTES": ["", "naïve 🐍"],
}
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def ask(beside: Beside, path: str, document: object) -> tuple[int, Any]:
    url = f"http://{beside.front.http}/v1/models/{path}"
    try:
        data = json.dumps(document).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def named(values: dict[str, Any]) -> dict[str, Any]:
    """The outputs in which the model gives its inputs back."""
    return {f"out_{name}": value for name, value in values.items()}


def close(found: Any, wanted: Any) -> bool:
    """Whether two are equal, as far as JSON's digits give a float32 back."""
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(wanted, float):
        return bool(found == pytest.approx(wanted, rel=1e-5, abs=0))
    return bool(found == wanted)


def test_every_datatype_comes_back_in_columns_and_in_rows(beside: Beside) -> None:
    status, answer = ask(beside, "mirror:predict", {"inputs": NUMBERS})
    assert status == 200, answer
    assert set(answer["outputs"]) == set(named(NUMBERS))
    for name, wanted in named(NUMBERS).items():
        assert close(answer["outputs"][name], wanted), name
    rows = [{name: values[number] for name, values in NUMBERS.items()} for number in (0, 1)]
    status, answer = ask(beside, "mirror:predict", {"instances": rows})
    assert status == 200, answer
    for found, row in zip(answer["predictions"], rows, strict=True):
        assert all(close(found[name], wanted) for name, wanted in named(row).items())


def test_what_triton_refuses_is_said_in_its_words(beside: Beside) -> None:
    status, said = ask(beside, "repeat:predict", {"inputs": [1]})
    assert status == 501 and "decoupled" in said["error"]
    status, said = ask(beside, "mirror:predict", {"inputs": {"FP32": [[1]]}})
    assert status == 400 and "unexpected shape for input 'FP32'" in said["error"]
    status, said = ask(beside, "told:predict", {"inputs": [-1]})
    assert status == 500 and "x must not be negative: é" in said["error"]
    x = tf.tensor(tf.FLOAT, [1], tf.floats(-1))
    for model, code in (
        ("repeat", grpc.StatusCode.UNIMPLEMENTED),
        ("told", grpc.StatusCode.INTERNAL),
    ):
        with grpc.insecure_channel(beside.front.grpc) as channel:
            predict = channel.unary_unary(PREDICT)
            error = refusal(grpc.RpcError, predict, tf.predict_request(tf.spec(model), x=x))
        assert error.code() is code  # type: ignore[attr-defined]


def test_every_datatype_comes_back_over_grpc(beside: Beside) -> None:
    lists = {
        "FP32": (tf.FLOAT, tf.floats(0.5, 2)),
        "FP64": (tf.DOUBLE, tf.sized(6, struct.pack("<2d", 0.1, 2))),
        "INT32": (tf.INT32, tf.sized(7, tf.varint(-1) + tf.varint(2))),
        "UINT8": (tf.UINT8, tf.sized(7, b"\x01\x02")),
        "INT64": (tf.INT64, tf.sized(10, tf.varint(-5) + tf.varint(5))),
        "BOOL": (tf.BOOL, tf.sized(11, b"\x01\x00")),
        "FP16": (tf.HALF, tf.sized(13, tf.varint(0x3C00) + tf.varint(0x4000))),
        "BF16": (14, tf.sized(13, tf.varint(0x4040) + tf.varint(0x3F80))),
        "UINT64": (23, tf.sized(17, tf.varint(1) + tf.varint(2))),
        "BYTES": (tf.STRING, tf.sized(8, b"\xff") + tf.sized(8, b"b")),
    }
    tensors = {name: tf.tensor(dtype, [2], data) for name, (dtype, data) in lists.items()}
    with grpc.insecure_channel(beside.front.grpc) as channel:
        answer = channel.unary_unary(PREDICT)(tf.predict_request(tf.spec("mirror"), **tensors))
    outputs = tf.mapped(answer, 1)
    assert set(outputs) == set(named(tensors))
    for name, wanted in named(tensors).items():
        assert tf.read(outputs[name]) == tf.read(wanted), name
    assert messages().read("PredictResponse", answer).model_spec.version.value == 1
