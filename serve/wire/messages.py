"""Small protobuf messages as plain values, by a table of their fields.

For the few answers that are made or merged here. A table names the fields of a message by their
numbers, with the words that Triton's JSON has for them; what is not in the table is dropped.

| kind            | value                                 | on the wire          |
|-----------------|---------------------------------------|----------------------|
| `Kind.TEXT`     | `str`                                 | length and UTF-8     |
| `Kind.BYTES`    | `bytes`                               | length and bytes     |
| `Kind.NUMBER`   | `int` of up to 64 bits                | varint               |
| `Kind.SIGNED`   | `int` of 63 bits and a sign           | varint               |
| `Kind.TRUTH`    | `bool`                                | varint               |
| a table         | `dict`                                | length and message   |

A field that may occur several times is a list, a map (`keyed`) a `dict` by its keys, which are
text. Fields that are not there are missing from the `dict`; a number of 0 and empty text are not
written, a message always is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from serve.core.errors import Unparsable
from serve.wire import protobuf

_SIGN = 1 << 63
_DEEPEST = 16  # levels of messages within messages


class ScalarKind(Enum):
    """What a field without fields of its own holds."""

    TEXT = "text"
    BYTES = "bytes"
    NUMBER = "number"
    SIGNED = "signed"
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message. `keyed` is a map from text to a message of this table."""

    name: str
    kind: "ScalarKind | Table"
    many: bool = False
    keyed: bool = False


Table = Mapping[int, MessageField]
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


def read(table: Table, message: bytes) -> dict[str, Any]:
    """The fields of a message that the table knows; `Unparsable` on nonsense."""
    return _read_into({}, table, message, _DEEPEST)


def write(table: Table, values: Mapping[str, Any]) -> bytes:
    """The message, its fields in ascending order as all serialisers write them."""
    parts = []
    for number in sorted(table):
        one = table[number]
        if one.name not in values:
            continue
        value = values[one.name]
        if one.keyed:
            parts += [protobuf.field(number, _entry(one.kind, *item)) for item in value.items()]
        elif one.many:
            parts += [_written(number, one.kind, item) for item in value]
        elif value or isinstance(value, Mapping):
            parts.append(_written(number, one.kind, value))
    return b"".join(parts)


def _read_into(found: dict[str, Any], table: Table, message: bytes, depth: int) -> dict[str, Any]:
    """Fields given later win, and messages given twice are merged."""
    if not depth:
        raise Unparsable("messages within messages")
    for number, raw in protobuf.fields(message):
        one = table.get(number)
        if one is None or isinstance(raw, int) != (one.kind in _VARINTS):
            continue
        if one.keyed and isinstance(raw, bytes):
            entry = read({_ENTRY_KEY: _KEY, _ENTRY_VALUE: MessageField("value", one.kind)}, raw)
            found.setdefault(one.name, {})[entry.get("key", "")] = entry.get("value", {})
        elif one.many:
            found.setdefault(one.name, []).append(_value({}, one.kind, raw, depth))
        else:
            found[one.name] = _value(found.get(one.name, {}), one.kind, raw, depth)
    return found


_KEY = MessageField("key", ScalarKind.TEXT)
_VARINTS = (ScalarKind.NUMBER, ScalarKind.SIGNED, ScalarKind.TRUTH)


def _value(before: dict[str, Any], kind: "ScalarKind | Table", raw: int | bytes, depth: int) -> Any:
    if isinstance(raw, int):
        if kind is ScalarKind.TRUTH:
            return bool(raw)
        return raw - 2 * _SIGN if kind is ScalarKind.SIGNED and raw >= _SIGN else raw
    if kind is ScalarKind.BYTES:
        return raw
    if isinstance(kind, ScalarKind):
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise Unparsable("text must be UTF-8") from error
    return _read_into(before, kind, raw, depth - 1)


def _written(number: int, kind: "ScalarKind | Table", value: Any) -> bytes:
    if isinstance(value, int):
        return protobuf.number(number, value % (2 * _SIGN))
    if isinstance(value, str):
        value = value.encode()
    elif not isinstance(kind, ScalarKind):
        value = write(kind, value)
    return protobuf.field(number, value)


def _entry(kind: "ScalarKind | Table", key: str, value: Any) -> bytes:
    return _written(_ENTRY_KEY, ScalarKind.TEXT, key) + _written(_ENTRY_VALUE, kind, value)
