"""`TensorProto` of TensorFlow ⇄ tensors with raw bytes.

A tensor has its elements in `tensor_content`, as raw as Triton takes them, or in the list of its
datatype. Such a list may be shorter than the shape: then its last element stands for the rest, and
an empty one means zeros. Answers have lists, as TensorFlow Serving's have: clients read them.
Source: `tensor.proto` and `tensor.cc` of TensorFlow.
"""

import math
from array import array
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from serve.core.errors import BadRequest
from serve.tensors.tfserving_tensors import (
    BYTES,
    DEEPEST,
    KINDS,
    NUMBERS,
    RawTensor,
    Shape,
    item_size,
    pack,
    unpack,
)

_HALVES = ("FP16", "BF16")
_LISTS = MappingProxyType(
    {
        "FP32": "float_val",
        "FP64": "double_val",
        BYTES: "string_val",
        "INT64": "int64_val",
        "BOOL": "bool_val",
        "UINT32": "uint32_val",
        "UINT64": "uint64_val",
        **dict.fromkeys(_HALVES, "half_val"),
        **dict.fromkeys(("INT32", "INT16", "INT8", "UINT16", "UINT8"), "int_val"),
    }
)


def declared_size(protos: Sequence[Any]) -> int:
    """How many bytes these tensors take, by their shapes; strings as if they were empty."""
    sizes = (
        item_size(NUMBERS[proto.dtype]) or 4 if proto.dtype in NUMBERS else 0 for proto in protos
    )
    counts = (math.prod(max(0, dim.size) for dim in proto.tensor_shape.dim) for proto in protos)
    return sum(size * count for size, count in zip(sizes, counts, strict=True))


def tensor_of(proto: Any, name: str, limit: int) -> RawTensor:
    """The tensor in a message; `BadRequest` when it is none, or takes more than `limit` bytes."""
    datatype = NUMBERS.get(proto.dtype)
    if datatype is None:
        raise BadRequest(f"input '{name}' has the data type {proto.dtype}, which is not supported")
    shape = _shape(proto.tensor_shape, name)
    size = math.prod(shape) * (item_size(datatype) or 4)
    if size > limit:
        raise BadRequest(f"input '{name}' has {size} bytes, more than {limit}")
    if proto.tensor_content:
        return RawTensor(datatype, shape, _content(proto.tensor_content, datatype, shape, name))
    given, count = getattr(proto, _LISTS[datatype]), math.prod(shape)
    try:
        raw = _packed(given[:count], datatype)
        if len(given) < count:
            zero = b"" if datatype == BYTES else 0
            last, missing = _packed(given[-1:] or [zero], datatype), count - len(given)
            if len(last) * missing > limit:
                raise BadRequest(f"input '{name}' has more than {limit} bytes")
            raw += last * missing
    except OverflowError as error:
        raise BadRequest(
            f"input '{name}' has a value that does not fit {KINDS[datatype].name}"
        ) from error
    return RawTensor(datatype, shape, raw)


def fill(proto: Any, tensor: RawTensor) -> None:
    """Write a tensor into an empty message."""
    proto.dtype = KINDS[tensor.datatype].number
    for size in tensor.shape:
        proto.tensor_shape.dim.add(size=size)
    raw = tensor.raw
    elements: Sequence[Any] = array("H", raw) if tensor.datatype in _HALVES else unpack(tensor)
    getattr(proto, _LISTS[tensor.datatype]).extend(elements)


def _shape(proto: Any, name: str) -> Shape:
    shape = tuple(dim.size for dim in proto.dim)
    if len(shape) > DEEPEST:
        raise BadRequest(f"input '{name}' has more than {DEEPEST} dimensions")
    if proto.unknown_rank or any(size < 0 for size in shape):
        raise BadRequest(f"input '{name}' has no definite shape")
    return shape


def _packed(elements: Sequence[Any], datatype: str) -> bytes:
    """Elements of a list as raw bytes; those of half precision stand in it as their bits."""
    if datatype in _HALVES:
        return array("H", [pattern & 0xFFFF for pattern in elements]).tobytes()
    return pack(elements, datatype)


def _content(content: bytes, datatype: str, shape: Shape, name: str) -> bytes:
    count = math.prod(shape)
    if datatype == BYTES:
        return pack(_texts(content, count, name), BYTES)
    if len(content) != count * item_size(datatype):
        raise BadRequest(
            f"input '{name}' of shape {list(shape)} has {len(content)} bytes of tensor_content"
        )
    return content


def _texts(content: bytes, count: int, name: str) -> list[bytes]:
    """Texts as TensorFlow packs them: all lengths as varints, then the texts without a gap."""
    lengths, position = [], 0
    try:
        for _ in range(count):
            length = shift = 0
            while content[position] & 0x80:
                length |= (content[position] & 0x7F) << shift
                shift, position = shift + 7, position + 1
            lengths.append(length | content[position] << shift)
            position += 1
    except IndexError as error:
        raise BadRequest(f"input '{name}' has a broken tensor_content") from error
    if position + sum(lengths) != len(content):
        raise BadRequest(f"input '{name}' has a broken tensor_content")
    texts = []
    for length in lengths:
        texts.append(content[position : position + length])
        position += length
    return texts
