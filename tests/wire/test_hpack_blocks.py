"""Header blocks: what is split off a block is what the `hpack` library reads in it."""

import string

import hpack
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from serve.wire import http2
from serve.wire.hpack_blocks import Field, Fields, HeaderBlocks, Memo, literal, size_of, text
from serve.wire.http2 import ConnectionFault

Pairs = list[tuple[bytes, bytes]]
NAMES = st.one_of(
    st.sampled_from([b":method", b":path", b"te", b"accept", b"content-type", b"grpc-timeout"]),
    st.text(string.ascii_lowercase + "-_.09", min_size=1, max_size=200).map(str.encode),
)
VALUES = st.one_of(st.sampled_from([b"", b"POST", b"GET", b"200"]), st.binary(max_size=300))
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


def fields() -> Fields:
    return Fields(lambda name: 0)


def decoded(split: list[Field], of: Fields) -> Pairs:
    return [(field[0].name, of.value(field)) for field in split]


def encoded(pairs: Pairs, *, huffman: bool, kind: int) -> bytes:
    """A block of a peer whose table has size 0; `kind` is how literals are marked."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    make = hpack.NeverIndexedHeaderTuple if kind == 0x10 else hpack.HeaderTuple
    block = encoder.encode([make(*pair) for pair in pairs], huffman=huffman)
    return bytes(block).removeprefix(b"\x20")


def read(block: bytes) -> Pairs:
    """What the library makes of a block for a table of size 0."""
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    return [
        (bytes(name), bytes(value)) for name, value in decoder.decode(b"\x20" + block, raw=True)
    ]


@given(PAIRS, st.booleans(), st.sampled_from([0x10, 0x40]))
def test_the_fields_of_a_block_are_those_that_the_library_reads_and_need_no_table(
    pairs: Pairs, huffman: bool, kind: int
) -> None:
    block, of = encoded(pairs, huffman=huffman, kind=kind), fields()
    split = of.split(block)
    assert decoded(split, of) == read(block) == pairs
    assert decoded(of.split(block), of) == pairs  # remembered names are the same
    assert read(b"".join(name.literal + value for name, value in split)) == pairs
    assert not any(name.literal[0] & 0xC0 == 0x40 for name, _ in split)


@given(st.binary(max_size=60))
def test_garbage_is_read_as_the_library_does_or_refused(block: bytes) -> None:
    of = fields()
    try:
        mine = decoded(of.split(block), of)
    except ConnectionFault as fault:
        assert fault.code == http2.COMPRESSION_ERROR
        return
    assert mine == read(block)


@given(PAIRS, st.data())
def test_a_block_that_is_cut_off_is_refused_or_ends_between_fields(
    pairs: Pairs, data: st.DataObject
) -> None:
    block = encoded(pairs, huffman=True, kind=0x10)
    end = data.draw(st.integers(0, len(block)))
    of = fields()
    try:
        found = decoded(of.split(block[:end]), of)
    except ConnectionFault:
        return
    assert found == pairs[: len(found)]


def test_what_needs_a_table_or_is_hostile_is_refused() -> None:
    for name, block in {
        "index 0": b"\x80",
        "dynamic field": b"\xbe",
        "dynamic name": b"\x7e\x01a",
        "dynamic name, long": b"\x0f\x80\x01\x01a",
        "size behind": b"\x82\x20",
        "size above 0": b"\x3f\xe1\x1f",
        "long zero": b"\x00\x7f\x80\x80\x80\x00",
        "long length": b"\x00\x01a\x7f\xff\xff\xff\x7f",
        "broken Huffman code": b"\x00\x82\xff\xff\x01a",
    }.items():
        error = refusal(ConnectionFault, fields().split, block)
        assert error.code == http2.COMPRESSION_ERROR, name


def test_a_literal_is_what_the_library_reads_and_sizes_are_counted_as_the_rfc_does() -> None:
    assert read(literal(b"x" * 300, b"y" * 20_000)) == [(b"x" * 300, b"y" * 20_000)]
    assert text(literal(b"", b"y" * 200)[2:]) == b"y" * 200
    assert size_of(fields().split(literal(b"abc", b"de") * 2)) == 2 * (3 + 3 + 32)


# --- one direction of a connection ---------------------------------------------------------------


def blocks(limit: int = 1000) -> HeaderBlocks[Pairs]:
    of = fields()
    return HeaderBlocks(Memo(of, lambda split: decoded(split, of)), limit)


def test_a_peer_with_a_table_is_read_by_the_library() -> None:
    encoder, reader = hpack.Encoder(), blocks()
    pairs = [(b"x-a", b"1"), (b"x-b", b"2")]
    reader.acknowledged()
    for _ in range(3):
        assert reader.read(bytes(encoder.encode(pairs))) == pairs
    assert not reader.is_stateless
    assert not reader.known


def test_a_peer_that_has_shrunk_its_table_and_has_agreed_to_is_read_without_state() -> None:
    pairs = [(b"x-a", b"1"), (b"x-b", b"2")]
    for is_early in (False, True):
        encoder, reader = hpack.Encoder(), blocks()
        if is_early:
            encoder.header_table_size = 0
        assert reader.read(bytes(encoder.encode(pairs))) == pairs
        assert not reader.is_stateless
        encoder.header_table_size = 0
        reader.acknowledged()
        for _ in range(3):
            assert reader.read(bytes(encoder.encode(pairs))) == pairs
        assert reader.is_stateless
        assert len(reader.known) == 1


def test_a_table_that_grows_again_and_a_list_far_beyond_the_limit_are_refused() -> None:
    reader = blocks()
    reader.acknowledged()
    reader.read(b"\x20")
    refusal(ConnectionFault, reader.read, b"\x20\x3f\xe1\x1f")
    bomb = bytes(hpack.Encoder().encode([(b"x", b"y" * 50)])) + b"\xbe" * 50
    error = refusal(ConnectionFault, blocks(limit=100).read, bomb)
    assert error.code == http2.ENHANCE_YOUR_CALM, "it is not even decoded"


def test_memos_are_bounded_and_blocks_that_come_once_are_not_remembered() -> None:
    reader = blocks()
    reader.acknowledged()
    reader.read(b"\x20")
    for number in range(3000):
        reader.read(literal(b"x", b"%d" % number))
    assert not reader.known
    for number in range(3000):
        block = literal(b"x-%d" % number, b"%d" % number)
        for _ in range(2):
            assert reader.read(block) == [(b"x-%d" % number, b"%d" % number)]
        assert len(reader.known) <= 1024
    for _ in range(2):
        reader.read(literal(b"x", b"y" * 5000))
    assert not any(len(block) > 2048 for block in reader.known)
