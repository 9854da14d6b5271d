"""JSON values on their way into tensors: what they are, and the sentences about wrong ones.

`fault_of` and `fault_in_rows` walk element by element, which only an error is worth. Source of the
sentences: TensorFlow Serving's `util/json_tensor.cc`.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

from serve.core.errors import BadRequest
from serve.tensors.tfserving_tensors import BYTES, DEEPEST, FLOATS, Port, Shape, kind_of, pack

_LONGEST_SHOWN = 256  # characters of a value in an error
_NAMES: Mapping[type, str] = {
    type(None): "Null",
    dict: "Object",
    list: "Array",
    str: "String",
    int: "Number",
    float: "Number",
}


def is_object(value: Any) -> bool:
    """Whether a JSON value is an object of named things, and no binary value."""
    return isinstance(value, dict) and not is_base64(value)


def shape_of(value: Any) -> Shape:
    """How lists are nested, by the first of each."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if len(shape) > DEEPEST:
            raise BadRequest(f"a tensor of more than {DEEPEST} dimensions")
        value = value[0] if value else None
    return tuple(shape)


def shown(value: Any) -> str:
    """A JSON value as an error shows it: its first characters."""
    text = ""
    try:
        for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            text += piece
            if len(text) >= _LONGEST_SHOWN:
                break
    except RecursionError:  # lists in lists, a thousand deep
        pass
    return text[:_LONGEST_SHOWN]


def accepted(datatype: str) -> set[type]:
    """The Python types of JSON values that may be elements of numbers and truth values."""
    if datatype in FLOATS:
        return {int, float}
    return {bool} if datatype == "BOOL" else {int}


def is_base64(value: Any) -> bool:
    """Whether a JSON value is a binary value."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def bytes_of(value: Any) -> bytes:
    """An element of a tensor of strings; `TypeError` or `ValueError` when it is none."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if not is_base64(value):
        raise TypeError
    text = value["b64"].rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def fault_of(value: Any, shape: Shape, datatype: str, level: int = 0) -> str:
    """The first thing that is wrong with a value at this level; empty when nothing is."""
    rank = len(shape)
    if not isinstance(value, list):
        if level != rank:
            return (
                f"JSON Value: {shown(value)} found at incorrect level: {level + 1} "
                f"in the JSON DOM. Expected at level: {rank}"
            )
        return _fault_of_element(value, datatype)
    if level >= rank:
        return f"Encountered list at unexpected level: {level} expected < {rank}"
    if len(value) != shape[level]:
        return (
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}"
        )
    faults = (fault_of(item, shape, datatype, level + 1) for item in value)
    return next(filter(None, faults), "")


def _fault_of_element(value: Any, datatype: str) -> str:
    try:
        if datatype == BYTES:
            bytes_of(value)
        elif type(value) in accepted(datatype):
            pack([value], datatype)
        else:
            raise TypeError
    except binascii.Error:
        return "Unable to base64 decode"
    except (OverflowError, TypeError, ValueError):
        if datatype == BYTES and isinstance(value, dict):
            return f"JSON Value: {shown(value)} not formatted correctly for base64 data"
        return (
            f"JSON Value: {shown(value)} Type: {type_name(value)} "
            f"is not of expected type: {kind_of(datatype).name}"
        )
    return ""


def type_name(value: Any) -> str:
    """The type of a JSON value, as TensorFlow Serving calls it."""
    return str(value) if isinstance(value, bool) else _NAMES[type(value)]


def fault_in_rows(values: list[Any], port: Port, *, is_named: bool) -> str:
    first = shape_of(values[0])
    key = f" key: {port.name}" if is_named else ""
    for number, value in enumerate(values):
        if not is_named and is_object(value):
            return f"Expecting value/list but got object at item {number} of input list"
        shape = shape_of(value)
        fault = fault_of(value, shape, port.datatype) or _disagreement(first, shape)
        if fault:
            return (
                f"Failed to process element: {number}{key} of 'instances' list. "
                f"Error: INVALID_ARGUMENT: {fault}"
            )
    return "the rows of 'instances' do not agree"


def _disagreement(first: Shape, shape: Shape) -> str:
    sizes = [math.prod(one) for one in (first, shape)]
    if sizes[0] != sizes[1]:
        return f"Expecting tensor size: {sizes[0]} but got: {sizes[1]}"
    if first != shape:
        texts = [f"[{','.join(map(str, one))}]" for one in (first, shape)]
        return f"Expecting shape {texts[0]} but got: {texts[1]}"
    return ""
