"""Heads of requests that differ only in what names a call: made from one that is remembered.

Theory. A fresh `traceparent` makes every header block another one, and cutting it into fields costs
as much as all the rest of a call. So the values of such fields are cut out, and what is left, the
template, is looked up. A template is learned from a block that was cut into fields as well, with
the same result, and in which the names of these fields stand once and nowhere else: a block with
the same template is cut at the same places.
"""

from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from serve.wire.grpc_heads import KEPT
from serve.wire.grpc_requests import VARYING, GrpcRequestReader, RequestHead, told
from serve.wire.hpack_blocks import Memo, size_of, string
from serve.wire.request_ids import GIVEN

_REMEMBERED = 1024  # templates; a full memo is emptied
_LARGEST = 2048  # bytes of a template
_NOT_KNOWN = None, 0
_LONG = 0x7F  # a length that goes on in further bytes
_huffman = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)

Kept = list[tuple[bytes, bytes]]  # name, and value as it is encoded


class RequestMemo(Memo[RequestHead]):
    """What was made of whole blocks, and of their templates."""

    def __init__(self, requests: GrpcRequestReader) -> None:
        super().__init__(requests.fields, requests.make)
        self._requests = requests
        self._marks: list[tuple[bytes, bytes]] = []  # names as they have come, and decoded
        self._templates: dict[bytes, tuple[RequestHead | None, int]] = {}  # how many were cut out
        self._seen: set[int] = set()  # hashes of templates that have come once

    @property
    def templates(self) -> int:
        """How many are remembered."""
        return len(self._templates)

    def learn(self, block: bytes, start: int) -> RequestHead:
        """See `Memo`."""
        cut = _cut(block, self._marks)
        if cut is not None:
            head, count = self._templates.get(cut[0], _NOT_KNOWN)
            if head is not None and count == len(cut[1]):
                return _filled(head, cut[1])
        made = super().learn(block, start)
        if not start and made.error is None and len(block) <= _LARGEST:
            self._learn_template(block)
        return made

    def _learn_template(self, block: bytes) -> None:
        fields = self.fields.split(block)
        varying = sorted((name.name, value) for name, value in fields if name.kind == KEPT)
        if not varying:
            return
        self._marks += [one for one in _MARKS if one[0] in block and one not in self._marks]
        template, kept = _cut(block, self._marks) or (b"", [])
        if sorted(kept) != varying or len(dict(kept)) != len(kept):
            return  # what looks like such a field is a part of a value, or a name comes twice
        if size_of(fields) + len(kept) * _LONG > self._requests.limit:
            return
        if hash(template) not in self._seen:
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen.add(hash(template))
            return
        if len(self._templates) >= _REMEMBERED:
            self._templates.clear()
        fixed = [one for one in fields if one[0].kind != KEPT]
        self._templates[template] = self._requests.make(fixed), len(kept)


def _cut(block: bytes, marks: list[tuple[bytes, bytes]]) -> tuple[bytes, Kept] | None:
    """A block without the values of the fields that vary, and these; names stay in it.

    None where that is not clear, because a name stands there twice or a value does not end.
    """
    kept: Kept = []
    for mark, name in marks:
        at = block.find(mark)
        if at < 0:
            continue
        start = at + len(mark)
        if start >= len(block) or block.find(mark, start) >= 0:
            return None
        length = block[start] & 0x7F
        end = start + 1 + length
        if length == _LONG or end > len(block):
            return None
        kept.append((name, block[start:end]))
        block = block[:start] + block[end:]
    return block, kept


def _filled(head: RequestHead, kept: Kept) -> RequestHead:
    """The head with these fields behind the others."""
    more, values = b"", dict(kept)
    for name, value in kept:
        more += _LITERALS[name] + value
    return RequestHead(
        head.method,
        head.verb,
        head.block + more,
        head.plain + more,
        head.timeout,
        head.encoding,
        head.length,
        head.ends_on_error,
        head.authorization,
        told(values.get(GIVEN)),
        values.get(b"traceparent", b""),
        head.status,
        head.error,
    )


def _marks(name: bytes) -> list[bytes]:
    """The ways in which a peer without a table writes this name."""
    packed = _huffman.encode(name)
    words = (string(name), bytes((0x80 | len(packed),)) + packed)
    return [first + word for first in (b"\x00", b"\x40", b"\x10") for word in words]


_LITERALS = {name: b"\x00" + string(name) for name in VARYING}
_MARKS = [(mark, name) for name in sorted(VARYING) for mark in _marks(name)]
