"""Tensors as they are kept, and as requests that can be sent again."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from serve.control.tries.messages import (
    grpc_json,
    json_request,
    pack,
    request_of,
    unpack,
    why_not_json,
)
from serve.tensors.datatypes import from_json

F32 = np.array([[0.1, 1 / 3, 3.4e38, 1e-45, -0.0]], np.float32)
WORDS = np.array([b"a\0", b"\xff", "ü".encode()], dtype=object)


def test_tensors_of_every_kind_come_back_as_they_were() -> None:
    tensors = {
        "f": F32,
        "b": np.array([True, False]),
        "w": WORDS,
        "h": np.array([0.5], np.float16),
        "e": np.empty((0, 3), np.int64),
        "brain": np.array([1.5], np.float32),
    }
    datatypes = dict(zip(tensors, ("FP32", "BOOL", "BYTES", "FP16", "INT64", "BF16"), strict=True))
    packed = pack(tensors, datatypes)
    assert packed is not None
    found, told = unpack(packed)
    assert told == datatypes
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def test_what_is_kept_is_a_request_that_can_be_sent() -> None:
    packed = pack({"f": F32}, {"f": "FP32"})
    assert packed is not None
    request = request_of(packed)
    head = json.loads(request.body[: request.head_length])
    assert head["inputs"][0]["name"] == "f"
    assert request.body[request.head_length :] == F32.tobytes()


def test_json_has_the_shortest_numbers_that_are_the_same_ones() -> None:
    (sent,) = json_request({"f": F32}, {"f": "FP32"})["inputs"]
    text = json.dumps(sent["data"])
    assert text.startswith("[[0.1, 0.33333334, ")
    back = from_json(json.loads(text), "FP32", (1, 5))
    assert back.tobytes() == F32.tobytes()


@pytest.mark.parametrize(
    ("array", "datatype", "answered", "why"),
    [
        (F32, "FP32", {}, ""),
        (F32, "FP32", {"y": "FP16"}, "'y' is FP16"),
        (F32, "BF16", {}, "'x' is BF16"),
        (np.array([np.nan], np.float32), "FP32", {}, "NaN"),
        (WORDS, "BYTES", {}, "not UTF-8 text"),
        (WORDS[2:], "BYTES", {"y": "BYTES"}, ""),
    ],
)
def test_what_json_cannot_hold_is_said(
    array: Any, datatype: str, answered: dict[str, str], why: str
) -> None:
    found = why_not_json({"x": array}, {"x": datatype}, answered)
    assert why in found and bool(found) == bool(why)


def test_protobufs_json_has_the_raw_bytes() -> None:
    page = grpc_json("m", "stable", {"f": F32}, {"f": "FP32"})
    assert page["model_version"] == "stable"
    assert base64.b64decode(page["raw_input_contents"][0]) == F32.tobytes()
    assert "model_version" not in grpc_json("m", "", {"f": F32}, {"f": "FP32"})
