"""The few protobuf bytes that routing needs: fields 1 to 4 of a request, read without its tensors.

Theory. A message is a row of fields, each a varint key (number << 3 | wire type) and its value. In
`ModelInferRequest`, and in the request of every other model verb, field 1 is the model's name and
field 2 its version. Serializers write fields in ascending order, so both stand first; the reader
walks the top-level fields anyway and steps over what it does not want, so that any order works. A
scalar field given twice has the value given last, so a version is set by appending field 2: the
tensors are neither read nor copied apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from serve.core.errors import BadRequest
from serve.wire.kserve_http import sequence_key

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Peek:
    """What routing wants to know of a request; strings are empty where the field is missing."""

    model: str
    version: str
    sequence: str


def peek(message: bytes, *, infer: bool) -> Peek:
    """Read name and version, and for an infer request its sequence id; `BadRequest` on nonsense.

    Source: `grpc_service.proto` of Triton, package `inference`; parameters are field 4 of
    `ModelInferRequest`, a map whose entries have the key in field 1 and the value in field 2.
    """
    model = version = b""
    sequence = ""
    position, end = 0, len(message)
    while position < end:
        number, kind, position = _key(message, position)
        start, position = _skip(message, position, kind)
        if kind != _BYTES:
            continue
        if number == 1:
            model = message[start:position]
        elif number == 2:
            version = message[start:position]
        elif number == 4 and infer:
            sequence = _sequence(message[start:position]) or sequence
    try:
        return Peek(model.decode(), version.decode(), sequence)
    except UnicodeDecodeError as error:
        raise BadRequest("model name and version must be UTF-8") from error


def set_field(message: bytes, number: int, value: str) -> bytes:
    """The message with a string field set, by appending it: the last value of a field wins."""
    data = value.encode()
    return b"".join((message, _varint(number << 3 | _BYTES), _varint(len(data)), data))


def boolean(number: int, value: bool) -> bytes:
    """A whole message with one boolean field; false is the default, which is not written."""
    return _varint(number << 3 | _VARINT) + b"\x01" if value else b""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The top-level fields of a message: numbers and values; other wire types are stepped over."""
    position = 0
    while position < len(message):
        number, kind, position = _key(message, position)
        start, position = _skip(message, position, kind)
        if kind == _BYTES:
            yield number, message[start:position]
        elif kind == _VARINT:
            yield number, _read_varint(message, start)[0]


def _sequence(entry: bytes) -> str:
    """The sequence id of one map entry of `parameters`, if this entry is the one."""
    key, value = b"", b""
    for number, found in fields(entry):
        if number == 1 and isinstance(found, bytes):
            key = found
        elif number == 2 and isinstance(found, bytes):
            value = found
    return _parameter(value) if key == b"sequence_id" else ""


def _parameter(value: bytes) -> str:
    """`InferParameter` as a sequence key: int64 is field 2, string field 3, uint64 field 5."""
    identity: int | str = 0
    for number, found in fields(value):
        if number in (2, 5) and isinstance(found, int):
            identity = found
        elif number == 3 and isinstance(found, bytes):
            identity = found.decode("utf-8", "replace")
    return sequence_key(identity)


def _key(message: bytes, position: int) -> tuple[int, int, int]:
    key, position = _read_varint(message, position)
    if key >> 3 == 0:
        raise BadRequest("the message is not a valid protobuf: field number 0")
    return key >> 3, key & 7, position


def _skip(message: bytes, position: int, kind: int) -> tuple[int, int]:
    """Where the value starts and where the next field does."""
    if kind == _BYTES:
        length, position = _read_varint(message, position)
        end = position + length
    elif kind == _VARINT:
        _, end = _read_varint(message, position)
    elif kind == _FIXED64:
        end = position + 8
    elif kind == _FIXED32:
        end = position + 4
    else:
        raise BadRequest(f"the message is not a valid protobuf: wire type {kind}")
    if end > len(message):
        raise BadRequest("the message is not a valid protobuf: it ends inside a field")
    return position, end


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise BadRequest("the message is not a valid protobuf: broken number")
        byte = message[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
