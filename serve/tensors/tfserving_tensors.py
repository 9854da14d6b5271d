"""Tensors on their way between TensorFlow Serving's clients and Triton: datatype, shape, raw bytes.

| v2            | TensorFlow    | number | an element here |
|---------------|---------------|--------|-----------------|
| FP32, FP64    | float, double | 1, 2   | float           |
| FP16, BF16    | half, bfloat16| 19, 14 | float           |
| INT8 … INT64  | int8 … int64  | …      | int             |
| UINT8 … UINT64| uint8 … uint64| …      | int             |
| BOOL          | bool          | 10     | bool            |
| BYTES         | string        | 7      | bytes           |

A worker does without numpy, which costs it 12 MB (measured): the standard library's arrays are what
Triton's raw tensors are, on the little-endian machines that Triton runs on.
Source: `types.proto` of TensorFlow; Triton's binary tensor data extension.
"""

import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from serve.core.errors import BadRequest

Shape = tuple[int, ...]
BYTES = "BYTES"
LARGE = 256 << 10  # bytes; more is converted beside the event loop, so that other calls go on
DEEPEST = 32  # dimensions of a tensor that are taken
_AT_ONCE = 1 << 16  # elements
_LENGTH = struct.Struct("<I")


class TensorflowType(NamedTuple):
    """A datatype of TensorFlow: its number, its name, and the type code of `array`, if any."""

    number: int
    name: str
    code: str = ""


KINDS: Mapping[str, TensorflowType] = MappingProxyType(
    {
        "FP32": TensorflowType(1, "float", "f"),
        "FP64": TensorflowType(2, "double", "d"),
        "INT32": TensorflowType(3, "int32", "i"),
        "UINT8": TensorflowType(4, "uint8", "B"),
        "INT16": TensorflowType(5, "int16", "h"),
        "INT8": TensorflowType(6, "int8", "b"),
        BYTES: TensorflowType(7, "string"),
        "INT64": TensorflowType(9, "int64", "q"),
        "BOOL": TensorflowType(10, "bool"),
        "BF16": TensorflowType(14, "bfloat16"),
        "UINT16": TensorflowType(17, "uint16", "H"),
        "FP16": TensorflowType(19, "half"),
        "UINT32": TensorflowType(22, "uint32", "I"),
        "UINT64": TensorflowType(23, "uint64", "Q"),
    }
)
NUMBERS: Mapping[int, str] = MappingProxyType({kind.number: v2 for v2, kind in KINDS.items()})
FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
_SIZES = MappingProxyType({"BOOL": 1, "BF16": 2, "FP16": 2})


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor. `raw` is in row-major order, as Triton's binary extension has it."""

    datatype: str
    shape: Shape
    raw: bytes


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model. A size of -1 in the shape may be any; batches are in it."""

    name: str
    datatype: str
    shape: Shape
    is_optional: bool = False
    has_labels: bool = False


@dataclass(frozen=True, slots=True)
class ServingSignature:
    """What a version takes and gives, in the order of its configuration."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    is_batched: bool = False

    @property
    def required(self) -> tuple[Port, ...]:
        """The inputs that no call may leave out."""
        return tuple(port for port in self.inputs if not port.is_optional)

    def input(self, name: str) -> Port | None:
        """The input of this name."""
        return next((port for port in self.inputs if port.name == name), None)

    def output(self, name: str) -> Port | None:
        """The output of this name."""
        return next((port for port in self.outputs if port.name == name), None)


def kind_of(datatype: str) -> TensorflowType:
    """TensorFlow's side of a v2 datatype; `BadRequest` for one that it does not have."""
    kind = KINDS.get(datatype)
    if kind is None:
        raise BadRequest(f"TensorFlow has no datatype for {datatype}")
    return kind


def signature_of(config: Any) -> ServingSignature:
    """The signature in a model's configuration, which is Triton's `ModelConfig` as JSON."""
    is_batched = int(config.get("max_batch_size") or 0) > 0
    return ServingSignature(
        tuple(_port(item, is_batched) for item in config.get("input") or ()),
        tuple(_port(item, is_batched) for item in config.get("output") or ()),
        is_batched,
    )


def item_size(datatype: str) -> int:
    """Bytes of an element; 0 where they differ."""
    code = kind_of(datatype).code
    return array(code).itemsize if code else _SIZES.get(datatype, 0)


def pack(elements: Sequence[Any], datatype: str) -> bytes:
    """Elements as raw bytes. `OverflowError` for a number that the datatype does not have."""
    code = kind_of(datatype).code
    if code:
        packed = array(code)
        for start in range(0, len(elements), _AT_ONCE):  # between which other threads may run
            packed.extend(array(code, elements[start : start + _AT_ONCE]))
        return packed.tobytes()
    if datatype == BYTES:
        return b"".join(_LENGTH.pack(len(element)) + element for element in elements)
    if datatype == "FP16":
        return struct.pack(f"<{len(elements)}e", *elements)
    if datatype == "BF16":
        bits = array("I", array("f", elements).tobytes())
        return array("H", map(_upper_half, bits)).tobytes()
    return bytes(elements)


def unpack(tensor: RawTensor) -> Sequence[Any]:
    """The elements of a tensor; `BadRequest` when its bytes are not as many as its shape needs."""
    raw, datatype, count = tensor.raw, tensor.datatype, math.prod(tensor.shape)
    if datatype == BYTES:
        elements = list(_split(raw))
        if len(elements) != count:
            raise BadRequest(f"a tensor of shape {list(tensor.shape)} has {len(elements)} elements")
        return elements
    if len(raw) != count * item_size(datatype):
        raise BadRequest(f"a tensor of shape {list(tensor.shape)} has {len(raw)} bytes")
    code = KINDS[datatype].code
    if code:
        return array(code, raw)
    if datatype == "FP16":
        return struct.unpack(f"<{count}e", raw)
    if datatype == "BF16":
        return array("f", array("I", (half << 16 for half in array("H", raw))).tobytes())
    return [byte != 0 for byte in raw]


def _upper_half(bits: int) -> int:
    """A float32's bits as BF16's: rounded to nearest, ties to even; a NaN stays a quiet NaN."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def _split(raw: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(raw):
        start = position + _LENGTH.size
        end = start + _LENGTH.unpack_from(raw, position)[0] if start <= len(raw) else start
        if end > len(raw):
            raise BadRequest("a tensor of texts ends inside one of them")
        yield raw[start:end]
        position = end


def _port(item: Any, is_batched: bool) -> Port:
    datatype = str(item["data_type"]).removeprefix("TYPE_")
    dims = tuple(int(size) for size in item.get("dims") or ())
    return Port(
        name=str(item["name"]),
        datatype=BYTES if datatype == "STRING" else datatype,
        shape=(-1, *dims) if is_batched else dims,
        is_optional=bool(item.get("optional")),
        has_labels=bool(item.get("label_filename")),
    )
