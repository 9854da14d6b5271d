"""TensorFlow Serving's messages byte by byte, written and read without any code of the gateway.

The numbers are those of TensorFlow's and TensorFlow Serving's proto files, so that a mistake in the
gateway's own table of them is seen.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

FLOAT, DOUBLE, INT32, UINT8, STRING, INT64, BOOL, HALF = 1, 2, 3, 4, 7, 9, 10, 19


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def sized(number: int, value: bytes | str) -> bytes:
    """A field with a length: a text, bytes, a message, or packed numbers."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value)


def spec(name: str, *, version: int | None = None, label: str = "", signature: str = "") -> bytes:
    """`ModelSpec`."""
    out = sized(1, name)
    if version is not None:
        out += sized(2, number(1, version))
    if signature:
        out += sized(3, signature)
    if label:
        out += sized(4, label)
    return out


def shape(sizes: Sequence[int]) -> bytes:
    """`TensorShapeProto`."""
    return b"".join(sized(2, number(1, size)) for size in sizes)


def tensor(dtype: int, sizes: Sequence[int], *fields: bytes) -> bytes:
    """`TensorProto`."""
    return number(1, dtype) + sized(2, shape(sizes)) + b"".join(fields)


def floats(*values: float) -> bytes:
    """`float_val`, packed."""
    return sized(5, struct.pack(f"<{len(values)}f", *values))


def entry(key: str, value: bytes) -> bytes:
    """One entry of a map."""
    return sized(1, key) + sized(2, value)


def predict_request(model: bytes, *outputs: str, **inputs: bytes) -> bytes:
    """`PredictRequest`."""
    tensors = b"".join(sized(2, entry(name, value)) for name, value in inputs.items())
    return sized(1, model) + tensors + b"".join(sized(3, name) for name in outputs)


def read(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a message by number."""
    found: dict[int, list[int | bytes]] = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value: int | bytes
        if key & 7 == 0:
            value, position = _varint(data, position)
        elif key & 7 == 2:
            length, position = _varint(data, position)
            value = data[position : position + length]
            position += length
        else:
            raise AssertionError(f"wire type {key & 7}")
        found.setdefault(key >> 3, []).append(value)
    return found


def one(data: bytes, *path: int) -> bytes:
    """The only value at the end of a path of field numbers."""
    for key in path:
        [value] = read(data)[key]
        assert isinstance(value, bytes)
        data = value
    return data


def mapped(data: bytes, key: int) -> dict[str, bytes]:
    """A map from texts to messages."""
    entries = [read(value) for value in read(data).get(key, []) if isinstance(value, bytes)]
    result = {}
    for found in entries:
        [name], [value] = found[1], found.get(2, [b""])
        assert isinstance(name, bytes) and isinstance(value, bytes)
        result[name.decode()] = value
    return result


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
