"""The few protobuf bytes that routing needs: fields 1 to 4 of a request, read without its tensors.

Theory. A message is a row of fields, each a varint key (number << 3 | wire type) and its value. In
`ModelInferRequest`, and in the request of every other model verb, field 1 is the model's name and
field 2 its version. Serializers write fields in ascending order, so both stand first; the reader
walks the top-level fields anyway and steps over what it does not want, so that any order works;
`names` reads the start of a message that is still coming. A scalar field given twice has the value
given last, so a version is set by appending field 2: the tensors are neither read nor copied apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from serve.core.errors import BadRequest, Unparsable
from serve.wire.sequences import sequence_key

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10  # bytes
_LONGEST_ID = 1 << 12  # bytes of a request in which its id is looked for


@dataclass(frozen=True, slots=True)
class Peek:
    """What routing wants to know of a request; strings are empty where the field is missing."""

    model: str
    version: str
    sequence: str


def peek(message: bytes, *, infer: bool) -> Peek:
    """Read name and version, and for an infer request its sequence id; `Unparsable` on nonsense.

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
            found = _sequence(message[start:position])
            sequence = sequence if found is None else found
    return Peek(_utf8(model), _utf8(version), sequence)


def whole_names(message: bytes | memoryview, position: int) -> tuple[str, str]:
    """Model name and version of a whole message from `position` on; `Unparsable` on nonsense.

    Every top-level field is stepped over, so that what is appended will be read as fields: a last
    field that is longer than the message would swallow it.
    """
    model: bytes | memoryview = b""
    version: bytes | memoryview = b""
    size = len(message)
    try:
        while position < size:
            key = message[position]
            length = message[position + 1]
            if key & 0x87 == _BYTES and key > 7 and length < 0x80:  # short, and of a low number
                value = position + 2
                position = value + length
            else:
                number, kind, after = _key(message, position)
                value, position = _skip(message, after, kind)
                key = number << 3 | kind
            if key == 0x0A:
                model = message[value:position]
            elif key == 0x12:
                version = message[value:position]
    except IndexError:
        position = size + 1
    if position > size:
        raise Unparsable("the message ends inside a field")
    return _utf8(bytes(model)), _utf8(bytes(version))


def names(start: bytes | memoryview, position: int, end: int) -> tuple[str, str] | None:
    """Model name and version from the start of a message, or None when more of it is needed.

    The message lies from `position` to `end`, which may be beyond what has come. Serializers write
    fields in ascending order: a field above 2 behind the name says that the version, when it has
    not been seen, is not there. `Unparsable` on nonsense.
    """
    size = min(end, len(start))
    model = version = b""
    is_named = False
    while position < end:
        key = start[position] if position < size else 0
        if key == 0x0A or key == 0x12:
            try:
                length, value = _read_varint(start, position + 1)
            except BadRequest:
                if size < end and size - position <= _LONGEST_VARINT:
                    return None
                raise
            position = value + length
            if position > size:
                if position > end:
                    raise Unparsable("the message ends inside a field")
                return None
            if key == 0x0A:
                model, is_named = bytes(start[value:position]), True
            else:
                version = bytes(start[value:position])
        elif position >= size or not is_named or key < 0x12:
            return None
        else:
            break
    return _utf8(model), _utf8(version)


class FieldWalk:
    """Follows the top-level fields of a message that passes in pieces, without reading a value.

    At the message's end it has to stand between two fields, for the reason that `whole_names` says.
    """

    __slots__ = ("_left", "_rest")

    def __init__(self) -> None:
        self._left = 0  # bytes of the present value that are still to come
        self._rest = b""  # a field whose key and length are not whole

    def follow(self, piece: bytes | memoryview, position: int = 0) -> None:
        """The next piece, which counts from `position` on; `Unparsable` on nonsense."""
        if self._rest:
            piece, position = self._rest + bytes(piece[position:]), 0
            self._rest = b""
        size = len(piece)
        position += self._left
        while position < size:
            begun = position
            try:
                _, kind, position = _key(piece, position)
                position = _end_of_value(piece, position, kind)
            except BadRequest:
                if size - begun > 2 * _LONGEST_VARINT:
                    raise
                self._rest, position = bytes(piece[begun:]), size
        self._left = position - size

    def finish(self) -> None:
        """The message is over; `BadRequest` when that is inside a field."""
        if self._left or self._rest:
            raise Unparsable("the message ends inside a field")


def request_id(start: bytes, *, is_whole: bool) -> bytes | None:
    """The `id` (field 3) of an infer request of which this is the start; None: more is needed."""
    position = 0
    while position < len(start):
        try:
            number, kind, after = _key(start, position)
            value, position = _skip(start, after, kind)
        except BadRequest:
            return b"" if is_whole or len(start) - position > _LONGEST_ID else None
        if number == 3 and kind == _BYTES:
            return start[value:position]
        if number > 3:
            return b""
    return b"" if is_whole else None


def answered_name(start: bytes, *, is_whole: bool) -> tuple[str, str] | None:
    """Model name and version in a `ModelStreamInferResponse` of which this is the start.

    None says that more is needed; the names are empty where the response has none (an error).
    """
    if start[:1] != b"\x12":
        return ("", "") if start or is_whole else None
    try:
        length, value = _read_varint(start, 1)
        found = names(start, value, value + length)
    except BadRequest:
        found = None
    return ("", "") if found is None and is_whole else found


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Unparsable("model name and version must be UTF-8") from error


def field(number: int, value: bytes) -> bytes:
    """One field that holds a string, bytes, or another message."""
    return b"".join((_varint(number << 3 | _BYTES), _varint(len(value)), value))


def boolean(number: int, value: bool) -> bytes:
    """A whole message with one boolean field; false is the default, which is not written."""
    return _varint(number << 3 | _VARINT) + b"\x01" if value else b""


def number(field_number: int, value: int) -> bytes:
    """A field of an unsigned integer, with its key."""
    return _varint(field_number << 3) + _varint(value)


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


def _sequence(entry: bytes) -> str | None:
    """The sequence id of one map entry of `parameters`; None when this entry is another one."""
    key, value = b"", b""
    for number, found in fields(entry):
        if number == 1 and isinstance(found, bytes):
            key = found
        elif number == 2 and isinstance(found, bytes):
            value += found  # messages given twice are merged
    return _parameter(value) if key == b"sequence_id" else None


def _parameter(value: bytes) -> str:
    """`InferParameter` as a sequence key: int64 is field 2, string field 3, uint64 field 5."""
    identity: int | str = 0
    for number, found in fields(value):
        if number in (2, 5) and isinstance(found, int):
            identity = found
        elif number == 3 and isinstance(found, bytes):
            identity = found.decode("utf-8", "replace")
        elif number == 1 and isinstance(found, int):
            identity = 0  # a truth value has taken its place
    return sequence_key(identity)


def _key(message: bytes | memoryview, position: int) -> tuple[int, int, int]:
    key, position = _read_varint(message, position)
    if key >> 3 == 0:
        raise Unparsable("field number 0")
    return key >> 3, key & 7, position


def _skip(message: bytes | memoryview, position: int, kind: int) -> tuple[int, int]:
    """Where the value starts and where the next field does."""
    end = _end_of_value(message, position, kind)
    if end > len(message):
        raise Unparsable("the message ends inside a field")
    if kind == _BYTES:
        _, position = _read_varint(message, position)
    return position, end


def _end_of_value(message: bytes | memoryview, position: int, kind: int) -> int:
    """Where the next field starts, perhaps behind what has come of the message."""
    if kind == _BYTES:
        length, position = _read_varint(message, position)
        return position + length
    if kind == _VARINT:
        return _read_varint(message, position)[1]
    if kind == _FIXED64:
        return position + 8
    if kind == _FIXED32:
        return position + 4
    raise Unparsable(f"wire type {kind}")


def _read_varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise Unparsable("malformed number")
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
