"""Large JSON documents: what they take in memory, and nested lists of numbers without the lists.

A list costs about a hundred bytes for each of its elements, which may be two characters long. So a
large document is weighed before it is read, and the usual one, in which everything is nested lists
of numbers, is never made of Python's lists at all:

    its brackets and commas  ──▶  do all lists of a level have the same length?  ──▶  the shape
    its numbers, 64 KiB at a time  ──▶  the tensor's bytes

    [[1,2],[3,4],[5,6]]  →  [[,],[,],[,]]  →  [x,x,x]  →  x          shape (3, 2)

Everything is done in slices: that is what keeps its memory low.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from serve.core.errors import BadRequest
from serve.tensors.tfserving_faults import accepted, fault_of
from serve.tensors.tfserving_tensors import BYTES, DEEPEST, LARGE, Port, RawTensor, Shape, pack

SLICE = 64 << 10  # bytes
MANY = 1 << 14  # values in a document that others would wait for
_PER_VALUE = 112  # bytes: a list of one number, and its place in another list (measured)
_PER_NUMBER = 24  # bytes: of 8 each, in the tensor and in two copies on the way to Triton
_PER_BYTE = 5  # a text may take four bytes for each of the body's, and its values one more
_TEXT = rb'"[^"\\]*"'
_HEAD = re.compile(
    rb'\s*\{\s*(?:"signature_name"\s*:\s*(?P<name>%b)\s*,\s*)?"(?P<key>instances|inputs)"\s*:\s*(?=\[)'
    % _TEXT
)
_TAIL = re.compile(rb'\s*(?:,\s*"signature_name"\s*:\s*(?P<name>%b)\s*)?\}\s*' % _TEXT)
_SPACE = b" \t\r\n"
_IN_NUMBERS = b"0123456789+-.eENaInfity" + _SPACE  # NaN and Infinity are numbers here
_EMPTY = re.compile(rb"\[\s*\]")
_BLANK = bytes.maketrans(b"[]", b"  ")
_READ = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class NestedNumbers:
    """Nested lists of numbers that have not been read yet: where they stand in a body."""

    start: int
    end: int
    shape: Shape

    def tensor(self, body: bytes, port: Port, *, is_rows: bool = False) -> RawTensor:
        """The tensor. `BadRequest` for what is no number, or none of the datatype."""
        parts, count, kinds = [], 0, accepted(port.datatype)
        for start, end in _cuts(body, self.start, self.end):
            numbers = _numbers(body[start:end], start)
            if port.datatype == BYTES or not kinds.issuperset(map(type, numbers)):
                raise BadRequest(self._fault(numbers, count, port, is_rows=is_rows))
            try:
                parts.append(pack(numbers, port.datatype))
            except (OverflowError, ValueError):
                raise BadRequest(self._fault(numbers, count, port, is_rows=is_rows)) from None
            count += len(numbers)
        if count != math.prod(self.shape):
            raise BadRequest("JSON Parse error: an element of a list is missing")
        return RawTensor(port.datatype, self.shape, b"".join(parts))

    def _fault(self, numbers: list[object], before: int, port: Port, *, is_rows: bool) -> str:
        """What is wrong with the first of these numbers that does not fit."""
        faults = ((at, fault_of(value, (), port.datatype)) for at, value in enumerate(numbers))
        at, fault = next((one for one in faults if one[1]), (0, "a number is out of range"))
        if not is_rows:
            return fault
        row = (before + at) // math.prod(self.shape[1:])
        return (
            f"Failed to process element: {row} of 'instances' list. "
            f"Error: INVALID_ARGUMENT: {fault}"
        )


@dataclass(frozen=True, slots=True)
class Weighed:
    """A body: bytes of memory that reading it may take, and whether others would wait for it.

    `numbers` are its tensor, when it is one of nested numbers; `name` is the signature's then.
    """

    weight: int
    is_large: bool
    key: str = ""
    name: str = ""
    numbers: NestedNumbers | None = None


def weigh(body: bytes, is_predict: bool = True) -> Weighed:
    """What a document takes. It may be no JSON at all: that is found out when it is read."""
    commas = lists = objects = 0
    for start in range(0, len(body), SLICE):
        commas += body.count(b",", start, start + SLICE)
        lists += body.count(b"[", start, start + SLICE)
        objects += body.count(b"{", start, start + SLICE)
    values = commas + lists + objects
    weight = _PER_BYTE * len(body) + _PER_VALUE * values
    if len(body) <= LARGE and values <= MANY:
        return Weighed(weight, is_large=False)
    head = _HEAD.match(body) if is_predict else None
    end = body.rfind(b"]") + 1
    tail = _TAIL.fullmatch(body, end) if head and end else None
    if head is None or tail is None or (head["name"] and tail["name"]):
        return Weighed(weight, is_large=True)
    shape = _shape(body, head.end(), end)
    if shape is None:
        return Weighed(weight, is_large=True)
    name = (head["name"] or tail["name"] or b'""')[1:-1].decode("utf-8", "surrogateescape")
    numbers = NestedNumbers(head.end(), end, shape)
    weight = 2 * len(body) + _PER_NUMBER * math.prod(shape)
    return Weighed(weight, True, head["key"].decode(), name, numbers)


def _shape(body: bytes, start: int, end: int) -> Shape | None:
    """The shape of nested lists; None unless there are only numbers in regular lists."""
    parts = []
    for begin, stop in _cuts(body, start, end):
        piece = body[begin:stop]
        brackets = piece.translate(None, _IN_NUMBERS)
        if brackets.strip(b"[],") or _EMPTY.search(piece) or stop - begin > 2 * SLICE:
            return None
        parts.append(brackets)
    structure = b"".join(parts)
    shape: list[int] = []
    while structure != b"x":
        stop = structure.find(b"]") + 1
        unit = structure[structure.rfind(b"[", 0, stop) : stop]
        count = unit.count(b",") + 1
        element = b"x" if shape else b""
        wanted = b"[%b%b]" % ((element + b",") * (count - 1), element)
        if unit != wanted or len(shape) == DEEPEST:
            return None
        structure = _collapsed(structure, unit)
        shape.append(count)
    return tuple(reversed(shape))


def _collapsed(structure: bytes, unit: bytes) -> bytes:
    parts, start = [], 0
    while start < len(structure):
        stop = structure.find(b"]", start + SLICE) + 1 or len(structure)
        parts.append(structure[start:stop].replace(unit, b"x"))
        start = stop
    return b"".join(parts)


def _cuts(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Slices that end behind a comma, or at the end."""
    while start < end:
        stop = end
        if end - start > SLICE:
            stop = body.rfind(b",", start, start + SLICE) + 1 or end
        yield start, stop
        start = stop


def _numbers(piece: bytes, start: int) -> list[object]:
    """The elements in a slice, without the lists that they are in."""
    text = piece.translate(_BLANK).decode("ascii")
    if text.endswith(","):
        text = text[:-1]
    try:
        numbers: list[object] = _READ.decode(f"[{text}]")
    except json.JSONDecodeError as error:
        where = start + error.pos - 1
        raise BadRequest(f"JSON Parse error: {error.msg} at offset: {where}") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadRequest(f"JSON Parse error: {error}") from error
    return numbers
