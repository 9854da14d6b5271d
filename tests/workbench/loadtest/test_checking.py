"""Answers against the labels of their rows, in every protocol."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from serve.tensors.datatypes import Array, datatype_of, to_raw
from serve.workbench.loadtest.answer_checks import checker
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload
from serve.workbench.loadtest.record import MALFORMED, RIGHT, WRONG

SCORES = np.array([[0.1, 0.7, 0.2], [0.9, 0.0, 0.1]], np.float32)  # classes 1 and 0
Body = tuple[bytes, int | None]  # and the length of its JSON head


def outcome(
    protocol: LaneProtocol, body: Body, expected: tuple[int, ...] | None, output: str = "y"
) -> str:
    payload = Payload(b"", rows=2, expected=expected, output=output)
    lane = Lane("test", protocol, "127.0.0.1:9", "/", (payload,))
    return checker(lane)(payload, *body)


def as_json(**outputs: Array) -> Body:
    tensors = [
        {"name": name, "datatype": datatype_of(x), "shape": list(x.shape), "data": x.tolist()}
        for name, x in outputs.items()
    ]
    return json.dumps({"model_name": "m", "outputs": tensors}).encode(), None


def as_binary(**outputs: Array) -> Body:
    tensors, parts = [], b""
    for name, x in outputs.items():
        part = to_raw(x, datatype_of(x))
        size = {"parameters": {"binary_data_size": len(part)}}
        tensors.append({"name": name, "datatype": datatype_of(x), "shape": list(x.shape)} | size)
        parts += part
    head = json.dumps({"model_name": "m", "outputs": tensors}).encode()
    return head + parts, len(head)


def as_grpc(**outputs: Array) -> Body:
    message = service_pb2.ModelInferResponse()
    for name, x in outputs.items():
        message.outputs.add(name=name, datatype=datatype_of(x), shape=x.shape)
        message.raw_output_contents.append(to_raw(x, datatype_of(x)))
    return message.SerializeToString(), None


def as_tfserving(**outputs: Array) -> Body:
    columns = {name: x.tolist() for name, x in outputs.items()}
    rows: list[Any] = [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    if len(columns) == 1:
        (rows,) = columns.values()
    return json.dumps({"predictions": rows}).encode(), None


@pytest.mark.parametrize(
    ("protocol", "encode"),
    [
        (LaneProtocol.HTTP_JSON, as_json),
        (LaneProtocol.HTTP_BINARY, as_binary),
        (LaneProtocol.HTTP_BINARY, as_json),
        (LaneProtocol.GRPC, as_grpc),
        (LaneProtocol.GRPC_STREAM, as_grpc),
        (LaneProtocol.TFSERVING, as_tfserving),
    ],
)
def test_an_answer_is_right_if_each_row_has_its_class(protocol: LaneProtocol, encode: Any) -> None:
    numbers = np.array([7, 3])
    both = encode(x=SCORES[::-1], y=SCORES)
    rows: list[tuple[Body, tuple[int, ...] | None, str, str]] = [
        (encode(y=SCORES), (1, 0), "y", RIGHT),
        (encode(y=SCORES), (1, 2), "y", WRONG),
        (encode(y=SCORES), (1, 0, 1), "y", WRONG),
        (encode(y=SCORES), (1, 0), "", RIGHT),  # an only output needs no name
        (both, (1, 0), "y", RIGHT),
        (both, (0, 1), "x", RIGHT),
        (both, (1, 0), "z", WRONG),
        (encode(y=numbers), (7, 3), "y", RIGHT),
        (encode(y=numbers[:, None]), (7, 3), "y", RIGHT),
        (encode(y=numbers), (7, 4), "y", WRONG),
        ((b"anything", None), None, "y", RIGHT),  # not read without labels
        *(((body, None), (1, 0), "y", MALFORMED) for body in (b"{", b"[]", b"\xff" * 3)),
        ((b"[" * 100_000, None), (1, 0), "y", MALFORMED),
    ]
    for number, (body, expected, output, wanted) in enumerate(rows):
        assert outcome(protocol, body, expected, output) == wanted, f"row {number}"


def test_the_class_of_a_row_is_its_highest_number() -> None:
    for scores, expected, wanted in (
        (np.array([[np.nan, 0.1, 0.2], [0.3, np.nan, 0.2]], np.float32), (2, 0), RIGHT),
        (SCORES[0], (1,), RIGHT),  # a single row without a batch dimension
        (np.array([[b"cat"], [b"dog"]], object), (0, 0), WRONG),
    ):
        assert outcome(LaneProtocol.GRPC, as_grpc(y=scores), expected) == wanted


def test_an_answer_that_is_repeated_stays_what_it_was() -> None:
    payload = Payload(b"", expected=(1, 0), output="y")
    other = Payload(b"", expected=(1, 1), output="y")
    check = checker(Lane("test", LaneProtocol.HTTP_JSON, "127.0.0.1:9", "/", (payload, other)))
    body = as_json(y=SCORES)
    assert [check(payload, *body) for _ in range(3)] == [RIGHT] * 3
    assert [check(other, *body) for _ in range(2)] == [WRONG] * 2
    assert check(payload, body[0] + b" ", body[1]) == RIGHT
    assert check(payload, body[0], 3) == MALFORMED


def test_rows_of_tensorflow_serving_have_to_match_and_columns_are_read_too() -> None:
    for page, wanted in (
        ({"predictions": [[0.1, 0.9], [0.2]]}, MALFORMED),
        ({"predictions": [{"y": [0.1, 0.9]}, {"x": [0.2]}]}, MALFORMED),
        ({"predictions": [{"y": [0.1, 0.9]}, 3]}, MALFORMED),
        ({"error": "no"}, MALFORMED),
        ({"outputs": SCORES.tolist()}, RIGHT),
        ({"outputs": {"y": SCORES.tolist(), "z": [1]}}, RIGHT),
    ):
        body = json.dumps(page).encode()
        assert outcome(LaneProtocol.TFSERVING, (body, None), (1, 0)) == wanted, page
