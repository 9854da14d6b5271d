"""Whether an answer is right: the class that scores highest in each row, against the labels.

| an output's rows are | the class of a row is                            |
|----------------------|--------------------------------------------------|
| scores               | the place of the highest; of equal ones the first |
| one whole number     | that number: the model has chosen itself          |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from serve.core.errors import ServegateError
from serve.tensors import codec
from serve.tensors.datatypes import Array
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload
from serve.workbench.loadtest.record import MALFORMED, RIGHT, WRONG

_UNNAMED = ""  # TensorFlow Serving does not name the output of a model that has one

Check = Callable[[Payload, bytes, int | None], str]
"""The outcome of an answer's whole body; the number is the length of its JSON head, or None."""


def checker(lane: Lane) -> Check:
    """How answers of this lane are judged: `RIGHT`, `WRONG` or `MALFORMED`.

    Without `expected` every answer is right. The last right answer of a payload is remembered, as
    most servers repeat it byte by byte: comparing costs far less than reading.
    """
    read = _READERS[lane.protocol]
    right: dict[int, tuple[Payload, bytes, int | None]] = {}

    def check(payload: Payload, body: bytes, head_length: int | None) -> str:
        if payload.expected is None:
            return RIGHT
        known = right.get(id(payload))
        if known is not None and known[1] == body and known[2] == head_length:
            return RIGHT
        try:
            outputs = read(body, head_length)
        except (ServegateError, ValueError, KeyError, TypeError, RecursionError):
            return MALFORMED
        if _classes(outputs, payload) != payload.expected:
            return WRONG
        right[id(payload)] = payload, body, head_length
        return RIGHT

    return check


def _classes(outputs: Mapping[str, Array], payload: Payload) -> tuple[int, ...] | None:
    """The class of each row; None where the output is missing, or is not of so many rows."""
    only = next(iter(outputs)) if len(outputs) == 1 else _UNNAMED
    name = _UNNAMED if _UNNAMED in outputs else payload.output or only
    scores, rows = outputs.get(name), len(payload.expected or ())
    if scores is None or not rows or scores.size == 0 or scores.dtype.kind not in "biuf":
        return None
    if rows > 1 and (scores.ndim == 0 or scores.shape[0] != rows):
        return None
    table = scores.reshape(rows, -1)
    if table.shape[1] == 1 and table.dtype.kind in "iu":
        return tuple(table[:, 0].tolist())
    if table.dtype.kind == "f":
        table = np.where(np.isnan(table), -np.inf, table)
    return tuple(table.argmax(axis=1).tolist())


def _kserve(body: bytes, head_length: int | None) -> Mapping[str, Array]:
    return codec.read_http_reply(body, head_length).outputs


def _grpc(body: bytes, _: int | None) -> Mapping[str, Array]:
    return codec.read_grpc_reply(body).outputs


def _tfserving(body: bytes, _: int | None) -> Mapping[str, Array]:
    """Rows under `predictions`, or columns under `outputs`; an only output has no name."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("the response is not a JSON object")
    rows = document.get("predictions")
    if isinstance(rows, list) and rows:
        columns: Any = rows
        if isinstance(rows[0], dict):
            columns = {name: [row[name] for row in rows] for name in rows[0]}
    else:
        columns = document.get("outputs")
    if columns is None:
        raise ValueError("the response has no predictions")
    if not isinstance(columns, dict):
        columns = {_UNNAMED: columns}
    return {name: np.asarray(column) for name, column in columns.items()}


_READERS: Mapping[LaneProtocol, Callable[[bytes, int | None], Mapping[str, Array]]] = {
    LaneProtocol.HTTP_JSON: _kserve,
    LaneProtocol.HTTP_BINARY: _kserve,
    LaneProtocol.GRPC: _grpc,
    LaneProtocol.GRPC_STREAM: _grpc,
    LaneProtocol.TFSERVING: _tfserving,
}
