"""JSON documents of TensorFlow Serving's REST API → tensors.

    {"instances": [row, …]}           each row a value or list, or an object with a key per input
    {"inputs": tensor | {name: …}}    each tensor as a whole, its lists nested as its shape is

A list's shape is that of its first elements, and all others must agree. Binary values are objects
`{"b64": "…"}`. The common case is checked level by level; only where that fails is the document
walked again, element by element, for the sentence that TensorFlow Serving would say.
Source: "RESTful API" of TensorFlow Serving's documentation; its sentences: `util/json_tensor.cc`.
"""

import json
from itertools import chain
from typing import Any, NamedTuple

from serve.core.errors import BadRequest
from serve.tensors.tfserving_faults import (
    accepted,
    bytes_of,
    fault_in_rows,
    fault_of,
    is_object,
    shape_of,
    shown,
)
from serve.tensors.tfserving_numbers import NestedNumbers, Weighed
from serve.tensors.tfserving_tensors import BYTES, Port, RawTensor, ServingSignature, Shape, pack
from serve.wire.tfserving_rest import check_signature

_READ = json.JSONDecoder()
_NO_LIST = (
    "instances is a plain list, but expecting list of objects as multiple "
    "input tensors required as per tensorinfo_map"
)
_NO_VALUE = (
    "inputs is a plain value/list, but expecting an object as multiple "
    "input tensors required as per tensorinfo_map"
)


class PredictBody(NamedTuple):
    """A predict request's tensors, and whether they came as rows, so that the answer does."""

    inputs: dict[str, RawTensor]
    is_row: bool


def document_of(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body. What stands behind it is not read."""
    if not body:
        raise BadRequest("JSON Parse error: The document is empty")
    try:  # bytes that are no UTF-8 pass through strings as they are
        text = body.decode("utf-8", "surrogateescape").lstrip("\ufeff \t\r\n")
        document, _ = _READ.raw_decode(text)
    except json.JSONDecodeError as error:
        raise BadRequest(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise BadRequest(f"JSON Value: {shown(document)} Is not object")
    return document


def signature_name(document: dict[str, Any]) -> str:
    """The signature that a request names; empty for the default."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise BadRequest(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def predict_inputs(document: dict[str, Any], signature: ServingSignature) -> PredictBody:
    """The tensors of a predict request."""
    has_rows, has_columns = "instances" in document, "inputs" in document
    if has_rows and has_columns:
        raise BadRequest(
            f"JSON Value: {shown(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist"
        )
    if not (has_rows or has_columns):
        raise BadRequest("Missing 'inputs' or 'instances' key")
    if has_columns:
        return PredictBody(_columns(document["inputs"], signature), is_row=False)
    rows = document["instances"]
    if not isinstance(rows, list):
        raise BadRequest(f"JSON Value: {shown(document)} Expecting 'instances' to be an list/array")
    if not rows:
        raise BadRequest(f"JSON Value: {shown(document)} No values in 'instances' array")
    return PredictBody(_rows(rows, signature), is_row=True)


def large_inputs(body: bytes, found: Weighed, signature: ServingSignature) -> PredictBody:
    """The tensors of a predict request that was weighed."""
    if found.numbers is None:
        document = document_of(body)
        check_signature(signature_name(document))
        return predict_inputs(document, signature)
    check_signature(found.name)
    return numbers_inputs(body, found, signature)


def numbers_inputs(body: bytes, found: Weighed, signature: ServingSignature) -> PredictBody:
    """The tensors of a predict request that is nested lists of numbers, for the only input."""
    numbers, is_row = found.numbers, found.key == "instances"
    assert isinstance(numbers, NestedNumbers)
    port = _only(signature, _NO_LIST if is_row else _NO_VALUE)
    return PredictBody({port.name: numbers.tensor(body, port, is_rows=is_row)}, is_row)


def tensor_of(value: Any, port: Port) -> RawTensor:
    """The tensor that nested lists, or a single value, write out."""
    shape = shape_of(value)
    tensor = _dense(value, shape, port)
    if tensor is None:
        raise BadRequest(fault_of(value, shape, port.datatype))
    return tensor


# --- rows and columns -----------------------------------------------------------------------------


def _rows(rows: list[Any], signature: ServingSignature) -> dict[str, RawTensor]:
    """One tensor per input, whose first dimension counts the rows."""
    if not is_object(rows[0]):
        port = _only(signature, _NO_LIST)
        return {port.name: _column(rows, port, is_named=False)}
    for number, row in enumerate(rows):
        if not is_object(row):
            raise BadRequest(f"Expecting object but got list at item {number} of input list")
        _check_keys(number, row, rows[0], signature)
    return {
        port.name: _column([row[port.name] for row in rows], port, is_named=True)
        for port in signature.inputs
        if port.name in rows[0]
    }


def _check_keys(
    number: int, row: dict[str, Any], first: dict[str, Any], signature: ServingSignature
) -> None:
    """Each row has the same keys: those of all inputs that are not optional, and no others."""
    element = f"Failed to process element: {number}"
    for name in row:
        if signature.input(name) is None:
            raise BadRequest(
                f"{element} key: {name} of 'instances' list. Error: INVALID_ARGUMENT: "
                f"JSON object: does not have named input: {name}"
            )
    wanted = first.keys() | {port.name for port in signature.required}
    if row.keys() != wanted:
        raise BadRequest(
            f"{element} of 'instances' list. JSON object: {shown(row)} "
            f"keys must be equal to: {','.join(sorted(wanted))}"
        )


def _column(values: list[Any], port: Port, *, is_named: bool) -> RawTensor:
    """One input of all rows. They have to agree in their shape."""
    shape = (len(values), *shape_of(values[0]))
    tensor = _dense(values, shape, port)
    if tensor is None:
        raise BadRequest(fault_in_rows(values, port, is_named=is_named))
    return tensor


def _columns(value: Any, signature: ServingSignature) -> dict[str, RawTensor]:
    if not is_object(value):
        port = _only(signature, _NO_VALUE)
        return {port.name: tensor_of(value, port)}
    for port in signature.required:
        if port.name not in value:
            raise BadRequest(f"Missing named input: {port.name} in 'inputs' object.")
    return {
        port.name: tensor_of(value[port.name], port)
        for port in signature.inputs
        if port.name in value
    }


def _only(signature: ServingSignature, otherwise: str) -> Port:
    """The one input that needs no name."""
    ports = signature.required or signature.inputs
    if len(ports) != 1:
        raise BadRequest(otherwise)
    return ports[0]


# --- the usual way --------------------------------------------------------------------------------


def _dense(value: Any, shape: Shape, port: Port) -> RawTensor | None:
    """The tensor, or None when lists differ in length or an element is of another type."""
    level = [value]
    for size in shape:
        if any(type(item) is not list or len(item) != size for item in level):
            return None
        level = _joined(level)
    kinds = set(map(type, level))
    try:
        if port.datatype == BYTES:
            raw = pack([bytes_of(item) for item in level], BYTES)
        elif kinds <= accepted(port.datatype):
            raw = pack(level, port.datatype)
        else:
            return None
    except (OverflowError, TypeError, ValueError):
        return None
    return RawTensor(port.datatype, shape, raw)


def _joined(lists: list[list[Any]]) -> list[Any]:
    """The elements of all lists, one list after the other."""
    if len(lists) == 1:
        return lists[0]
    return list(chain.from_iterable(lists))
