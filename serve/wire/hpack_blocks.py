"""Header blocks (RFC 7541): cut into fields without decoding what nobody here reads.

Theory. HPACK costs because of its dynamic table: with it a block means nothing without all blocks
before it. We advertise a table of size 0. A peer that has acknowledged this and whose encoder has
said "size 0" can only write constants of the static table and literals: each block then stands for
itself, may be remembered as a whole, and a field that is passed on needs no decoding at all:

    1xxxxxxx                  index of name and value    b"\\x82"
    01xxxxxx [name] value     literal, to be indexed     (nothing is indexed in a table of size 0)
    0000xxxx [name] value     literal
    0001xxxx [name] value     literal that must stay one
    001xxxxx                  new size of the table      only in front, only 0

A field is a `HeaderName`, remembered by its encoded bytes, and the encoded bytes of its value.
Until the peer gets there, and for a peer that never does, the `hpack` library decodes; its fields
are written as literals again, so that all readers see one form.

Integers are short here: three bytes beyond the first, so that a value that Triton would take for an
attack on the connection, which many callers share, ends with the caller who sent it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import hpack
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from serve.wire.http2 import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFault

_STATIC: tuple[tuple[bytes, bytes], ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_LAST_STATIC = 61
_LONGEST_INTEGER = 3  # bytes after the first
_REMEMBERED = 1024  # entries of a memo; a full one is emptied
_LARGEST_REMEMBERED = 2048  # bytes of a block
_OVERHEAD = 32  # bytes that RFC 9113 6.5.2 adds to every field


class HeaderName:
    """The name of a field. `kind` is what its reader made of it, `literal` its bytes for a block.

    An indexed field has its value here too, and no bytes of a value.
    """

    __slots__ = ("kind", "literal", "name", "value")

    def __init__(self, name: bytes, value: bytes | None, literal: bytes, kind: int) -> None:
        self.name = name
        self.value = value
        self.literal = literal
        self.kind = kind

    def __repr__(self) -> str:
        return f"<HeaderName {self.name!r} kind={self.kind}>"


Field = tuple[HeaderName, bytes]


class Fields:
    """Cuts stateless blocks into fields; `classify` gives the kind of a name. Bounded."""

    def __init__(self, classify: Callable[[bytes], int]) -> None:
        self._classify = classify
        self._names: dict[bytes, HeaderName] = {}
        self._values: dict[bytes, bytes] = {}
        self._indexed = [self._indexed_name(index) for index in range(_LAST_STATIC + 1)]

    def split(self, block: bytes, start: int = 0) -> list[Field]:
        """The fields of a block that needs no table; `ConnectionFault` when not, or broken."""
        fields: list[Field] = []
        position, end, names = start, len(block), self._names
        try:
            while position < end:
                first = block[position]
                if first >= 0x80:
                    if not 0x80 < first <= 0x80 + _LAST_STATIC:
                        raise _broken("a field of the dynamic table, which has no room")
                    fields.append((self._indexed[first - 0x80], b""))
                    position += 1
                    continue
                begin = position
                if first == 0x00 or first == 0x40 or first == 0x10:
                    length = block[position + 1] & 0x7F
                    position += 2
                    if length == 0x7F:
                        length, position = _integer(block, position, 0x7F)
                    position += length
                else:
                    position = _name_end(block, position)
                name = names.get(block[begin:position]) or self._learn(block[begin:position])
                begin = position
                length = block[position] & 0x7F
                position += 1
                if length == 0x7F:
                    length, position = _integer(block, position, 0x7F)
                position += length
                fields.append((name, block[begin:position]))
        except IndexError:
            raise _broken("a header block ends inside a field") from None
        if position != end:
            raise _broken("a header block ends inside a field")
        return fields

    def value(self, field: Field) -> bytes:
        """The value of a field, decoded; remembered, because Huffman codes are slow to read."""
        name, encoded = field
        if name.value is not None:
            return name.value
        known = self._values.get(encoded)
        if known is None:
            known = text(encoded)
            if len(self._values) >= _REMEMBERED:
                self._values.clear()
            if len(encoded) <= _LARGEST_REMEMBERED:
                self._values[encoded] = known
        return known

    def literal(self, name: bytes, value: bytes) -> Field:
        """A decoded field in the form of `split`."""
        encoded = b"\x00" + string(name)
        return self._names.get(encoded) or self._learn(encoded), string(value)

    def _learn(self, encoded: bytes) -> HeaderName:
        first = encoded[0]
        never = first & 0xF0 == 0x10
        index = _literal_index(encoded)
        name = _STATIC[index][0] if index else text(encoded[1:])
        literal = (b"\x10" if never else b"\x00") + string(name)
        if len(self._names) >= _REMEMBERED:
            self._names.clear()
        known = HeaderName(name, None, literal, self._classify(name))
        if len(encoded) <= _LARGEST_REMEMBERED:
            self._names[encoded] = known
        return known

    def _indexed_name(self, index: int) -> HeaderName:
        name, value = _STATIC[index]
        return HeaderName(name, value, bytes((0x80 + index,)), self._classify(name))


T = TypeVar("T")


class Memo(Generic[T]):
    """What was made of whole blocks, by their bytes. Shared by all connections of a worker.

    A block is remembered when it comes for the second time: many come once, with an identity of
    their call in them, and would only push the others out.
    """

    def __init__(self, fields: Fields, make: Callable[[list[Field]], T]) -> None:
        self.known: dict[bytes, T] = {}
        self.fields = fields
        self._make = make
        self._met: set[int] = set()  # hashes of blocks that have come once

    def learn(self, block: bytes, start: int) -> T:
        """What a block means, remembered when it is not too large."""
        made = self._make(self.fields.split(block, start))
        identity = hash(block)
        if identity not in self._met:
            if len(self._met) >= _REMEMBERED:
                self._met.clear()
            self._met.add(identity)
        elif start == 0 and len(block) <= _LARGEST_REMEMBERED:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            self.known[block] = made
        return made

    def make(self, decoded: list[Field]) -> T:
        """What fields mean that the library decoded."""
        return self._make(decoded)


class HeaderBlocks(Generic[T]):
    """Reads the header blocks of one direction of one connection.

    `limit`, in bytes, is what `make` refuses beyond; the library gives up at twice as much.
    `known` is what whole blocks mean, for those in a hurry; empty while the library is needed.
    """

    __slots__ = ("_decoder", "_is_acknowledged", "_limit", "_memo", "known")

    def __init__(self, memo: Memo[T], limit: int) -> None:
        self.known: dict[bytes, T] = {}
        self._memo = memo
        self._limit = limit
        self._is_acknowledged = False
        self._decoder: hpack.Decoder | None = hpack.Decoder(max_header_list_size=2 * limit)

    @property
    def is_stateless(self) -> bool:
        """Whether the library is no longer needed."""
        return self._decoder is None

    def acknowledged(self) -> None:
        """The peer has acknowledged that our table has size 0."""
        self._is_acknowledged = True

    def read(self, block: bytes) -> T:
        """What the block means; `ConnectionFault` when it is broken, or what `make` raises."""
        if self._decoder is None:
            known = self.known.get(block)
            if known is not None:
                return known
            return self._memo.learn(block, _size_updates(block))
        if self._is_acknowledged and (block[:1] == b"\x20" or not self._decoder.header_table_size):
            self._decoder = None
            self.known = self._memo.known
            return self.read(block)
        return self._memo.make(self._decode(self._decoder, block))

    def skip(self, block: bytes) -> None:
        """Read a block that says nothing to us, for what it does to the table."""
        if self._decoder is None:
            self._memo.fields.split(block, _size_updates(block))
        else:
            self._decode(self._decoder, block)

    def _decode(self, decoder: hpack.Decoder, block: bytes) -> list[Field]:
        try:
            pairs = list(decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFault(
                ENHANCE_YOUR_CALM, f"headers far beyond {self._limit} bytes"
            ) from error
        except hpack.HPACKError as error:
            raise _broken(str(error)) from error
        return [self._memo.fields.literal(bytes(name), bytes(value)) for name, value in pairs]


def size_of(fields: list[Field]) -> int:
    """The size of a header list as RFC 9113 6.5.2 counts it, with values as they are encoded."""
    size = len(fields) * _OVERHEAD
    for name, value in fields:
        size += len(name.name) + len(value)
    return size


def text(encoded: bytes) -> bytes:
    """A string literal: as it stands, or out of its Huffman code."""
    length, position = encoded[0] & 0x7F, 1
    if length == 0x7F:
        length, position = _integer(encoded, 1, 0x7F)
    value = encoded[position : position + length]
    if len(value) < length:
        raise _broken("a header block ends inside a string")
    if encoded[0] & 0x80:
        try:
            return decode_huffman(value)
        except hpack.HPACKError as error:
            raise _broken("a broken Huffman code") from error
    return value


def string(value: bytes) -> bytes:
    """A string literal without Huffman code."""
    return bytes(hpack.hpack.encode_integer(len(value), 7)) + value


def literal(name: bytes, value: bytes) -> bytes:
    """A field that goes into no table."""
    return b"\x00" + string(name) + string(value)


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """The rest of an integer (RFC 7541 5.1) whose prefix is full, and where it ends."""
    for shift in range(0, 7 * _LONGEST_INTEGER, 7):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _broken("an integer without end")


def _name_end(block: bytes, position: int) -> int:
    """Where the name of a literal ends that refers to the static table."""
    first = block[position]
    if first & 0xE0 == 0x20:
        raise _broken("a table size in the middle of a block")
    full = 0x3F if first & 0x40 else 0x0F
    index = first & full
    position += 1
    if index == full:
        index, position = _integer(block, position, full)
    if index > _LAST_STATIC:
        raise _broken("a name of the dynamic table, which has no room")
    return position


def _literal_index(encoded: bytes) -> int:
    full = 0x3F if encoded[0] & 0x40 else 0x0F
    index = encoded[0] & full
    return _integer(encoded, 1, full)[0] if index == full else index


def _size_updates(block: bytes) -> int:
    """How many table sizes stand in front; each must be 0."""
    position = 0
    while block[position : position + 1] == b"\x20":
        position += 1
    return position


def _broken(why: str) -> ConnectionFault:
    return ConnectionFault(COMPRESSION_ERROR, why)
