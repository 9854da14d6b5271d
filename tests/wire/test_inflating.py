"""Inflating: no compressed body grows beyond the limit, whatever it is made of."""

import gzip
import tracemalloc
import zlib
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from serve.wire.decompression import FREE, Inflation, inflated_head

PIECE = 64 << 10
LIMIT = 100_000


def packed(size: int, *, form: str = "gzip") -> bytes:
    """As many zeros, compressed."""
    return gzip.compress(bytes(size), mtime=0) if form == "gzip" else zlib.compress(bytes(size))


def cut(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def refuses(limit: int, *pieces: bytes) -> bool:
    """Whether one of the pieces is the last straw."""
    inflation = Inflation(limit)
    return any(inflation.exceeds(piece) for piece in pieces)


def test_a_body_may_grow_to_the_limit_and_not_beyond() -> None:
    for step in (1, 7, 1 << 20):
        for form in ("gzip", "deflate"):
            assert not refuses(LIMIT, *cut(packed(LIMIT, form=form), step)), (form, step)
            assert refuses(LIMIT, *cut(packed(LIMIT + 1, form=form), step)), (form, step)


def test_a_bomb_is_found_in_its_first_pieces() -> None:
    inflation, passed = Inflation(LIMIT), 0
    for piece in cut(packed(1 << 25), 64):
        if inflation.exceeds(piece):
            break
        passed += len(piece)
    assert 0 < passed < 1024
    assert refuses(LIMIT, packed(1 << 20)[:-50]), "a bomb that is cut off is one"


def test_a_bomb_in_one_piece_takes_no_more_memory_than_a_few_pieces() -> None:
    bomb = packed(1 << 25)
    tracemalloc.start()
    try:
        assert refuses(1 << 24, bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 * PIECE
    finally:
        tracemalloc.stop()


def test_the_members_of_a_body_count_together() -> None:
    assert not refuses(LIMIT, packed(LIMIT // 2) * 2)
    assert refuses(LIMIT, packed(LIMIT // 2) * 2 + packed(1))
    assert refuses(LIMIT, *cut(packed(LIMIT // 2) * 3, 11))
    assert refuses(LIMIT, packed(LIMIT) + packed(1, form="deflate"))
    assert not refuses(LIMIT, packed(0) * 1000 + packed(LIMIT))


def test_what_cannot_be_inflated_is_left_to_triton() -> None:
    for step in (1, 1 << 20):
        for body in (
            b"",
            b"{}",
            b"\x00" * 1000,
            b"\x1f\x8b" + b"\xff" * 1000,
            b'{"inputs":[]}' * 1000,
            packed(50)[:-3],
            packed(50)[:7],
            packed(50) + b"garbage",
            b"garbage" + packed(LIMIT),
            packed(50)[:-8] + b"\x00" * 8,
            zlib.compressobj(wbits=-15).compress(b"x" * 900),
        ):
            assert not refuses(LIMIT, *cut(body, step)), (body, step)


def inflated(body: bytes) -> int:
    """How many bytes a reader of all members gets out of it, up to the first fault."""
    size, reader = 0, zlib.decompressobj(wbits=47)
    try:
        while body:
            size += len(reader.decompress(body, 1))
            body = reader.unconsumed_tail
            if reader.eof:
                body, reader = reader.unused_data, zlib.decompressobj(wbits=47)
        size += len(reader.flush())
    except zlib.error:
        pass
    return size


_PARTS = st.one_of(
    st.builds(packed, st.integers(0, 9000), form=st.sampled_from(["gzip", "deflate"])),
    st.binary(max_size=3000).map(gzip.compress),
    st.builds(lambda size, end: packed(size)[:-end], st.integers(0, 9000), st.integers(1, 30)),
    st.binary(max_size=30),
)


@given(st.lists(_PARTS, max_size=5), st.integers(1, 3000), st.integers(0, 8000))
def test_nothing_lets_more_through_than_the_limit_and_a_piece(
    parts: list[bytes], step: int, limit: int
) -> None:
    body, inflation, passed = b"".join(parts), Inflation(limit), b""
    for piece in cut(body, step):
        if inflation.exceeds(piece):
            break
        passed += piece
    assert inflated(passed) <= limit + PIECE


@given(st.lists(st.builds(packed, st.integers(0, 9000)), max_size=4), st.integers(1, 3000))
def test_a_body_without_fault_is_judged_by_its_whole_size(parts: list[bytes], step: int) -> None:
    body = b"".join(parts)
    size = inflated(body)
    assert not refuses(size, *cut(body, step))
    if size:
        assert refuses(size - 1, *cut(body, step))


def test_a_body_that_grows_out_of_all_proportion_is_stopped_before_the_limit() -> None:
    assert Inflation(1 << 40).exceeds(zlib.compress(bytes(80 << 20)))
    assert not Inflation(1 << 40).exceeds(zlib.compress(bytes(16 << 20)))
    inflation = Inflation(1 << 30)
    assert inflation.exceeds(packed(FREE + 1))
    assert inflation.limit == FREE, "the limit that was met"
    assert inflation.exceeds(packed(1)), "what has been refused stays refused"


def test_the_beginning_of_a_body_is_inflated_alone() -> None:
    for pack in (gzip.compress, zlib.compress):
        data = pack(b"head" + bytes(1 << 20))
        assert inflated_head(data, 4) == b"head", pack
        assert inflated_head(data) == b"head" + bytes(1 << 20), pack
    assert inflated_head(gzip.compress(b"whole") + gzip.compress(b"too")) == b"wholetoo"
    assert inflated_head(gzip.compress(b"whole") + b"neither") == b"whole"
    assert inflated_head(b"neither") == b""


def test_many_small_members_cost_no_more_than_their_bytes() -> None:
    tracemalloc.start()
    assert inflated_head(gzip.compress(b"") * 50_000) == b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
