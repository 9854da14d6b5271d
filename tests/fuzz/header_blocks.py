"""Header blocks: cut into fields, they say what the hpack library says, block after block.

An input is a row of blocks, each behind its length in two bytes; the length 0xffff is the peer's
acknowledgement of our table size instead.
"""

import hpack

from serve.core.errors import ServegateError
from serve.wire.grpc_head_templates import RequestMemo
from serve.wire.grpc_heads import answer_memo
from serve.wire.grpc_requests import GrpcRequestReader, RequestHead
from serve.wire.hpack_blocks import Field, Fields, HeaderBlocks, Memo
from serve.wire.http2 import ConnectionFault, Malformed

LIMIT = 4000  # bytes of a header list
_ACKNOWLEDGED = 0xFFFF
Pairs = list[tuple[bytes, bytes]]


def play(data: bytes) -> None:
    """See the module."""
    fields = Fields(lambda name: 0)
    rewritten: list[bytes] = []

    def make(read: list[Field]) -> Pairs:
        rewritten[:] = [b"".join(name.literal + value for name, value in read)]
        return [(name.name, fields.value((name, value))) for name, value in read]

    blocks = HeaderBlocks(Memo(fields, make), LIMIT)
    judge = hpack.Decoder(max_header_list_size=1 << 20)
    answers, requests = answer_memo(), RequestMemo(GrpcRequestReader(LIMIT))
    for block in _blocks(data):
        if block is None:
            blocks.acknowledged()
            continue
        was_stateless = blocks.is_stateless
        rewritten.clear()
        try:
            pairs = blocks.read(block)
        except ConnectionFault:
            return  # the connection ends
        if blocks.is_stateless and not was_stateless:
            judge.header_table_size = 0
            judge.max_allowed_table_size = 0
        judged = [(bytes(name), bytes(value)) for name, value in judge.decode(block, raw=True)]
        assert pairs == judged, (pairs, judged)
        if rewritten:
            again = hpack.Decoder(max_header_list_size=1 << 20).decode(rewritten[0], raw=True)
            assert [(bytes(n), bytes(v)) for n, v in again] == judged
        if blocks.is_stateless:
            _read_as_head(answers, block)
            _read_as_head(requests, block)


def _read_as_head(memo: Memo[object], block: bytes) -> None:
    """A head of gRPC means the same when it is met again, and ends in no other exception."""
    said = []
    for _ in range(2):
        try:
            said.append(_meaning(HeaderBlocks.read(_stateless(memo), block)))
        except (ConnectionFault, Malformed, ServegateError) as error:
            said.append(repr(error))
    assert said[0] == said[1]


def _meaning(head: object) -> str:
    """All that a head says; fields of different names have no order among them."""
    if not isinstance(head, RequestHead):
        return repr(head)
    passed = []
    for block in (head.block, head.plain):
        read = hpack.Decoder(max_header_list_size=1 << 20).decode(block, raw=True)
        passed.append(sorted((bytes(name), bytes(value)) for name, value in read))
    return repr((head, head.authorization, passed))


def _stateless(memo: Memo[object]) -> "HeaderBlocks[object]":
    blocks: HeaderBlocks[object] = HeaderBlocks(memo, LIMIT)
    blocks._decoder = None
    return blocks


def _blocks(data: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(data) >= 2:
        size, data = int.from_bytes(data[:2], "big"), data[2:]
        if size == _ACKNOWLEDGED:
            found.append(None)
        else:
            found.append(data[:size])
            data = data[size:]
    return found
