"""The datatypes of KServe v2 and their numpy side: elements as raw bytes, as JSON, as an array.

| datatype         | numpy               | raw                                     | JSON          |
|------------------|---------------------|-----------------------------------------|---------------|
| BOOL             | bool                | one byte, 0 or 1                        | true, false   |
| UINT8 … UINT64   | uint8 … uint64      | little-endian                           | whole numbers |
| INT8 … INT64     | int8 … int64        | little-endian                           | whole numbers |
| FP16, FP32, FP64 | float16 … float64   | little-endian IEEE 754                  | numbers       |
| BF16             | float32             | the upper half of a float32             | numbers       |
| BYTES            | object, all `bytes` | 4-byte little-endian length, then bytes | UTF-8 strings |

numpy has no BF16, so its values are float32 here; they are rounded to the nearest BF16, ties to
even, on their way out. Elements stand in row-major order everywhere.
Source: "Tensor Data" of the KServe v2 protocol, and Triton's binary tensor data extension.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.core.errors import Invalid

Array = NDArray[Any]
Shape = tuple[int, ...]

BF16, BYTES = "BF16", "BYTES"
_PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "BOOL": "?",
        "UINT8": "<u1",
        "UINT16": "<u2",
        "UINT32": "<u4",
        "UINT64": "<u8",
        "INT8": "<i1",
        "INT16": "<i2",
        "INT32": "<i4",
        "INT64": "<i8",
        "FP16": "<f2",
        "FP32": "<f4",
        "FP64": "<f8",
    }
)
DATATYPES = (*_PLAIN, BF16, BYTES)
_NAMES = {np.dtype(code): name for name, code in _PLAIN.items()}
_LENGTH = struct.Struct("<I")
_MAX_DIMENSIONS = 32  # of numpy 1


def numpy_dtype(datatype: str, name: str = "") -> np.dtype[Any]:
    """The numpy dtype on our side of a datatype; `Invalid` for one that v2 does not have."""
    if datatype == BYTES:
        return np.dtype(object)
    if datatype == BF16:
        return np.dtype(np.float32)
    if datatype not in _PLAIN:
        raise Invalid(
            f"{_tensor(name)} has the unknown datatype '{datatype}'",
            try_this=f"use one of {', '.join(DATATYPES)}",
        )
    return np.dtype(_PLAIN[datatype]).newbyteorder("=")


def datatype_of(array: Array, name: str = "") -> str:
    """The datatype an array has by itself: float32 is FP32 (BF16 must be said), text is BYTES."""
    if array.dtype.kind in "OSU":
        return BYTES
    datatype = _NAMES.get(array.dtype.newbyteorder("<"))
    if datatype is None:
        raise Invalid(
            f"{_tensor(name)} is a numpy array of {array.dtype}",
            why="KServe v2 has no such datatype",
            try_this="use astype(numpy.float32)",
        )
    return datatype


def to_raw(array: Array, datatype: str, name: str = "") -> bytes:
    """The elements as raw bytes; the array is of `numpy_dtype(datatype)`, or text for BYTES."""
    if datatype == BYTES and array.dtype.kind in "OSU":
        return b"".join(_length_prefixed(element, name) for element in array.ravel().tolist())
    wanted = numpy_dtype(datatype, name)
    if array.dtype.newbyteorder("=") != wanted:
        raise Invalid(
            f"{_tensor(name)} is a numpy array of {array.dtype}",
            why=f"{datatype} needs {wanted}",
            try_this=f"use astype(numpy.{wanted})",
        )
    if datatype == BF16:
        return _bfloat16(array.astype("<f4")).tobytes()
    return array.astype(_PLAIN[datatype], copy=False).tobytes()


def from_raw(raw: bytes | memoryview, datatype: str, shape: Shape, name: str = "") -> Array:
    """The array of this shape that the bytes hold; they must be exactly as many as it needs."""
    wanted = numpy_dtype(datatype, name)
    if datatype == BYTES:
        return _shaped(_objects(_split(raw, math.prod(shape), name)), shape, name)
    code = "<u2" if datatype == BF16 else _PLAIN[datatype]
    needed = math.prod(shape) * np.dtype(code).itemsize
    if len(raw) != needed:
        raise Invalid(
            f"{_tensor(name)} has {len(raw)} bytes",
            why=f"{datatype} of shape {list(shape)} needs {needed}",
        )
    array: Array = np.frombuffer(raw, dtype=code)
    if datatype == BF16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif datatype == "BOOL":
        array = array.view(np.uint8) != 0
    return _shaped(array.astype(wanted), shape, name)  # a copy: writable, native byte order


def to_json(array: Array) -> Any:
    """Nested lists; texts as UTF-8, and bytes that are none as `\\xNN`. NaN and infinities stay."""
    if array.dtype.kind not in "OS":
        return array.tolist()
    texts = [_decoded(element) for element in array.ravel().tolist()]
    return _objects(texts).reshape(array.shape).tolist()


def from_json(data: Any, datatype: str, shape: Shape, name: str = "") -> Array:
    """The array of this shape whose elements are `data`, a list, flat or nested."""
    elements = list(_flat(data, name))
    if len(elements) != math.prod(shape):
        raise Invalid(
            f"{_tensor(name)} has {len(elements)} elements",
            why=f"shape {list(shape)} needs {math.prod(shape)}",
        )
    wanted = numpy_dtype(datatype, name)
    for element in elements:
        if not _fits(element, datatype, wanted):
            raise Invalid(
                f"{_tensor(name)} has the element {_shown(element)}",
                why=f"it is not a value of {datatype}",
            )
    if datatype == BYTES:
        return _shaped(_objects([_encoded(element, name) for element in elements]), shape, name)
    return _shaped(np.array(elements, dtype=wanted), shape, name)


def from_nested(data: Any, datatype: str, name: str = "") -> Array:
    """The array that nested lists write out; its shape is how they are nested."""
    shape: list[int] = []
    level = data
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    if len(shape) > _MAX_DIMENSIONS:
        raise _too_deep(name)
    if not _is_even(data, shape):
        raise Invalid(
            f"{_tensor(name)} has lists of different lengths",
            why=f"the first ones have {' x '.join(map(str, shape)) or 'no'} elements",
            try_this="use lists of equal length",
        )
    return from_json(data, datatype, tuple(shape), name)


def cast(array: Array, datatype: str, name: str = "") -> Array:
    """The same values as another datatype. Fractions may lose digits, whole numbers must fit."""
    wanted = numpy_dtype(datatype, name)
    is_text = array.dtype.kind in "OSU"
    if is_text != (datatype == BYTES) or array.dtype.kind not in "OSUbiuf":
        kind = "text" if is_text else str(array.dtype)
        raise Invalid(f"{_tensor(name)} contains {kind}", why=f"the model expects {datatype}")
    if is_text or array.dtype == wanted:
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        result: Array = array.astype(wanted)
    if not _is_kept(array, result):
        raise Invalid(
            f"{_tensor(name)} has values of {array.dtype} that do not fit {datatype}",
            why=f"they range from {array.min()} to {array.max()}",
            try_this=f"convert them to {wanted} first",
        )
    return result


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest, ties to even; a NaN stays a quiet NaN."""
    bits = values.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits + half) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet, rounded).astype("<u2")


def _split(raw: bytes | memoryview, count: int, name: str) -> list[bytes]:
    """The elements of a BYTES tensor: `count` times a length and as many bytes, and no more."""
    elements: list[bytes] = []
    position = 0
    while position < len(raw):
        start = position + _LENGTH.size
        end = start + _LENGTH.unpack_from(raw, position)[0] if start <= len(raw) else start
        if end > len(raw):
            raise Invalid(
                f"{_tensor(name)} ends inside element {len(elements)}",
                why=f"the element needs {end - position} bytes, and {len(raw) - position} are left",
            )
        elements.append(bytes(raw[start:end]))
        position = end
    if len(elements) != count:
        raise Invalid(
            f"{_tensor(name)} has {len(elements)} elements", why=f"its shape needs {count}"
        )
    return elements


def _length_prefixed(element: object, name: str) -> bytes:
    data = _encoded(element, name)
    return _LENGTH.pack(len(data)) + data


def _encoded(element: object, name: str) -> bytes:
    if isinstance(element, str):
        return element.encode("utf-8", "surrogatepass")
    if isinstance(element, bytes):
        return element
    raise Invalid(
        f"{_tensor(name)} has the element {_shown(element)}",
        why=f"BYTES contains texts and bytes, not {type(element).__name__}",
    )


def _decoded(element: object) -> str:
    return (
        element.decode("utf-8", "backslashreplace") if isinstance(element, bytes) else str(element)
    )


def _objects(elements: list[Any]) -> Array:
    """A flat object array; numpy alone would make 'S' or 'U' of it, or look inside the elements."""
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def _shaped(array: Array, shape: Shape, name: str) -> Array:
    """In this shape, which already has the right number of elements."""
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{_tensor(name)} has the shape {list(shape)}", why=str(error)) from error


def _too_deep(name: str) -> Invalid:
    return Invalid(f"{_tensor(name)} has more than {_MAX_DIMENSIONS} dimensions")


def _flat(data: Any, name: str, depth: int = 0) -> Iterator[Any]:
    if not isinstance(data, list):
        yield data
        return
    if depth == _MAX_DIMENSIONS:
        raise _too_deep(name)
    for item in data:
        yield from _flat(item, name, depth + 1)


def _is_even(data: Any, shape: list[int]) -> bool:
    if not shape:
        return not isinstance(data, list)
    if not isinstance(data, list) or len(data) != shape[0]:
        return False
    return all(_is_even(item, shape[1:]) for item in data)


def _fits(element: object, datatype: str, wanted: np.dtype[Any]) -> bool:
    """Whether a JSON value is one of the datatype: no text for a number, no number for a text."""
    if datatype == BYTES:
        return isinstance(element, str)
    if datatype == "BOOL":
        return isinstance(element, bool)
    if isinstance(element, bool) or not isinstance(element, int | float):
        return False
    if wanted.kind == "f":
        infinite = isinstance(element, float) and not math.isfinite(element)
        return infinite or abs(element) <= float(np.finfo(wanted).max)
    low, high = _limits(wanted)
    return isinstance(element, int) and low <= element <= high


def _is_kept(array: Array, result: Array) -> bool:
    """Whether a cast kept the values: as floats none became infinite, as integers none changed."""
    if result.dtype.kind == "f":
        return bool(np.array_equal(np.isfinite(result), np.isfinite(array)))
    if array.size == 0:
        return True
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.rint(array))).all():
        return False
    low, high = (0, 1) if result.dtype.kind == "b" else _limits(result.dtype)
    return low <= int(array.min()) and int(array.max()) <= high


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _tensor(name: str) -> str:
    return f"tensor '{name}'" if name else "the tensor"


def _shown(element: object) -> str:
    text = repr(element)
    return text if len(text) <= 40 else f"{text[:37]}..."
