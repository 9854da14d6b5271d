"""Responses to a call and to its copy, compared."""

import json

import numpy as np
import pytest

from serve.core.calls import Headers
from serve.core.errors import Invalid
from serve.tensors.archive import read_archive
from serve.tensors.codec import HEAD_LENGTH_HEADER, MalformedReply, grpc_request, http_request
from serve.tensors.mirrored import compare_responses, inputs_archive

SCORES = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], np.float32)
CLASSES = {"y": {"kind": "classes", "values": "probabilities"}}


def response(**outputs: np.ndarray) -> tuple[bytes, Headers]:
    """As Triton sends it, with binary outputs."""
    made = http_request(outputs)
    body = made.body.replace(b'"inputs"', b'"outputs"', 1)
    length = made.head_length + 1
    return body, ((HEAD_LENGTH_HEADER.lower().encode(), b"%d" % length),)


def compared(
    a: np.ndarray, b: np.ndarray, declared: dict = CLASSES, *, labelled: tuple = (), batched=True
) -> tuple[int, int]:
    found = compare_responses("http", response(y=a), response(y=b), declared, labelled, batched)
    assert set(found) == {"y"}
    return found["y"]


def test_rows_are_compared_by_the_declared_kind() -> None:
    near = SCORES + np.float32(0.05) * np.array([1, -1], np.float32)
    flipped = SCORES[:, ::-1].copy()
    assert compared(SCORES, near) == (3, 0)
    assert compared(SCORES, flipped) == (0, 3)
    assert compared(SCORES, np.vstack([SCORES[:2], flipped[2:]])) == (2, 1)
    assert compared(SCORES, near, {}) == (0, 3), "plain numbers are the same within 1 %"
    assert compared(SCORES, near, {}, labelled=("y",)) == (3, 0), "label texts make them classes"


def test_without_a_batch_all_of_an_output_is_one_row() -> None:
    assert compared(SCORES[0], SCORES[0], batched=False) == (1, 0)
    assert compared(SCORES[0], SCORES[1], batched=False) == (0, 1)


def test_texts_are_compared_as_texts() -> None:
    words, others = (np.array([[b"a"], [text]], object) for text in (b"b", b"c"))
    assert compared(words, words, {}) == (2, 0)
    assert compared(words, others, {}) == (1, 1)
    long = (np.array([[text * 5000] for text in (b"ab", one)], object) for one in (b"ba", b"ab"))
    assert compared(*long, {}) == (1, 1), "without a measure that would take half a minute"


def test_what_has_another_shape_or_is_missing_differs() -> None:
    assert compared(SCORES, SCORES[:2]) == (0, 3)
    assert compared(SCORES, np.array([[b"a"]] * 3, object), {}) == (0, 3)
    found = compare_responses("http", response(y=SCORES), response(z=SCORES[:2]), CLASSES, (), True)
    assert found == {"y": (0, 3), "z": (0, 2)}


def test_outputs_that_belong_to_boxes_are_no_outputs_of_their_own() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[0.9, 0.8]], np.float32)
    declared = {"boxes": {"kind": "boxes", "format": "xyxy", "scores": "scores"}}
    sides = [response(boxes=boxes, scores=one) for one in (scores, scores / 1.1)]
    assert compare_responses("http", *sides, declared, (), True) == {"boxes": (1, 0)}


def test_a_response_that_cannot_be_read_is_an_error() -> None:
    for broken in ((b"{", ()), (b"{}", ()), (b'{"outputs": 5}', ())):
        with pytest.raises(MalformedReply):
            compare_responses("http", response(y=SCORES), broken, {}, (), True)
    with pytest.raises(MalformedReply):
        compare_responses("grpc", (b"", ()), (b"\xff", ()), {}, (), True)


# --- the inputs of a call that is kept ------------------------------------------------------------

INPUTS = {"x": SCORES, "words": np.array([[b"a"], [b"bc"]], object)}


def same_inputs(data: bytes) -> bool:
    found = read_archive(data, most=1 << 20)
    return found.keys() == INPUTS.keys() and all(
        np.array_equal(found[name].astype(array.dtype), array) for name, array in INPUTS.items()
    )


def test_the_inputs_of_a_request_are_read_whatever_form_they_have() -> None:
    binary = http_request(INPUTS)
    head = f"Content-Type: x\r\n{HEAD_LENGTH_HEADER}: {binary.head_length}\r\n\r\n".encode()
    assert same_inputs(inputs_archive("http", head, binary.body))
    page = {
        "inputs": [
            {"name": "x", "shape": [3, 2], "datatype": "FP32", "data": SCORES.ravel().tolist()},
            {"name": "words", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "bc"]},
        ]
    }
    assert same_inputs(inputs_archive("http", b"\r\n", json.dumps(page).encode()))
    assert same_inputs(inputs_archive("grpc", b"", grpc_request("m", INPUTS)))


def test_a_request_that_cannot_be_read_is_an_error() -> None:
    for protocol, head, body in (
        ("http", b"", b"{"),
        ("http", b"", b"[]"),
        ("http", b"Content-Encoding: gzip\r\n\r\n", b"{}"),
        ("grpc", b"", b"\xff"),
    ):
        with pytest.raises((Invalid, MalformedReply)):
            inputs_archive(protocol, head, body)
