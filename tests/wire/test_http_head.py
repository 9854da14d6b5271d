"""Heads of answers: how they are read, what is passed on, and what leaves a doubt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from serve.wire.http_head import BadHead, ReplyHead, ReplyHeads, read_reply_head

OK = b"HTTP/1.1 200 OK\r\n"
JSON_LENGTH = b"Inference-Header-Content-Length"


def read(*lines: bytes, first: bytes = OK) -> ReplyHead:
    """The head with this status line and these header lines."""
    return read_reply_head(first + b"\r\n".join(lines))


def test_a_head_as_triton_writes_it_passes_as_it_is() -> None:
    lines = (
        b"Content-Type: application/octet-stream",
        b"Inference-Header-Content-Length: 170",
        b"Content-Length: 234",
    )
    head = read(*lines)
    assert head.lines == OK + b"\r\n".join(lines) + b"\r\n"
    assert (head.status, head.length, head.is_chunked, head.keeps_alive) == (200, 234, False, True)
    assert head.headers == (
        (b"content-type", b"application/octet-stream"),
        (b"inference-header-content-length", b"170"),
        (b"content-length", b"234"),
    )


def test_names_keep_their_case_and_values_their_bytes() -> None:
    lines = (b"X-MiXeD:no space", b"x-Latin: gr\xf6\xdfe", b"X-Wide: \t a  b ", b"X-Empty:")
    head = read(*lines, b"x-wide: 2", b"Content-Length: 0")
    assert head.lines == OK + b"\r\n".join(lines) + b"\r\nx-wide: 2\r\nContent-Length: 0\r\n"
    assert (head.header(b"x-wide"), head.header(b"x-b")) == (b"a  b", b"")


def test_the_status_and_its_words_pass() -> None:
    for first, status, passed_on in (
        (b"HTTP/1.1 200 OK", 200, b"HTTP/1.1 200 OK"),
        (b"HTTP/1.1 404 Not Found", 404, b"HTTP/1.1 404 Not Found"),
        (b"HTTP/1.1 999 ", 999, b"HTTP/1.1 999 "),
        (b"HTTP/1.1 503", 503, b"HTTP/1.1 503 "),
        (b"HTTP/1.0 200 OK", 200, b"HTTP/1.1 200 OK"),
    ):
        head = read(b"Content-Length: 5", first=first + b"\r\n")
        assert head.status == status, (first, status)
        assert head.lines == passed_on + b"\r\nContent-Length: 5\r\n", (first, status)


def test_anything_else_is_no_answer_of_http() -> None:
    for first in (
        *(b"", b"HTTP/1.1", b"HTTP/1.1 ", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK"),
        *(b"HTTP/1.1 099 OK", b"HTTP/1.1 +20 OK", b"HTTP/1.1 abc OK", b"HTTP/1.1  200 OK"),
        *(b"HTTP/1.1\t200 OK", b"HTTP/1.2 200 OK", b"HTTP/2 200", b"http/1.1 200 OK"),
        *(b" HTTP/1.1 200 OK", b"\nHTTP/1.1 200 OK", b"HTTP/1.1 200 OK\n"),
        *(b"HTTP/1.1 200\nX-A: 1", b"HTTP/1.1 200 O\rK"),
        *(b"POST /v2 HTTP/1.1", b"\x00\x00\x12\x04\x00"),
    ):
        refusal(BadHead, read, b"Content-Length: 5", first=first + b"\r\n")


def test_a_header_that_is_malformed_is_refused() -> None:
    for line in (
        *(b"no colon", b": no name", b"X A: 1", b"X-A : 1", b" X-A: 1", b"\tfolded"),
        *(b" folded: into the one before", b"X-\xe9: 1", b"X-A: 1\nX-B: 2", b"X-A: 1\rX-B: 2"),
        *(b"X-A: 1\r", b"X-A: \x00"),
        *(b"X-A: 1\n\nHTTP/1.1 200 OK", b"Content-Length: 5\nContent-Length: 6"),
    ):
        refusal(BadHead, read, b"X-First: 1", line, b"Content-Length: 5")


def test_a_length_that_is_no_number_or_given_twice_is_refused() -> None:
    """RFC 9110 8.6: even equal ones are refused, or replaced with one."""
    length, json_length = b"Content-Length: ", JSON_LENGTH + b": "
    for value in (
        *(b"", b"-1", b"+5", b"5.0", b"0x5", b"5 5", b"5, 5", b"5,6", b"five"),
        *(b"\xb2", b"9" * 19),
    ):
        refusal(BadHead, read, length + value)
    for second in (b"5", b"6", b"05", b"", b"five"):
        refusal(BadHead, read, b"Content-Length: 5", b"content-length: " + second)
    for value in (b"", b"-1", b"two", b"1.0", b"9" * 19):
        refusal(BadHead, read, b"Content-Length: 5", json_length + value)


def test_a_length_may_have_zeros_before_it_and_space_around_it() -> None:
    assert read(b"Content-Length:\t 007 ").length == 7


def test_an_answer_in_chunks_has_no_length() -> None:
    for value in (b"chunked", b"Chunked", b" chunked "):
        head = read(b"X-A: 1", b"Transfer-Encoding: " + value)
        assert (head.length, head.is_chunked, head.keeps_alive) == (None, True, True), value
        assert head.lines == OK + b"X-A: 1\r\n", value
        assert head.headers == ((b"x-a", b"1"),), value


def test_a_coding_that_leaves_a_doubt_is_refused() -> None:
    for codings in (
        *((b"gzip",), (b"gzip, chunked",), (b"chunked, gzip",), (b"chunked, chunked",)),
        *((b"xchunked",), (b"identity",), (b"",), (b"chunked", b"chunked"), (b"gzip", b"chunked")),
    ):
        refusal(BadHead, read, *(b"Transfer-Encoding: " + one for one in codings))
    refusal(BadHead, read, b"Transfer-Encoding: chunked", b"Content-Length: 5")
    refusal(BadHead, read, b"Content-Length: 5", b"transfer-encoding: Chunked")


def test_chunks_in_an_answer_of_http_1_0_are_refused() -> None:
    """RFC 9112 6.1: its framing is faulty."""
    with pytest.raises(BadHead):
        read(b"Transfer-Encoding: chunked", first=b"HTTP/1.0 200 OK\r\n")


def test_without_length_or_chunks_the_end_of_the_connection_ends_the_body() -> None:
    head = read(b"Content-Type: text/plain")
    assert (head.length, head.is_chunked, head.keeps_alive) == (None, False, False)


def test_some_answers_have_no_body_whatever_they_say() -> None:
    for line in (b"X-A: 1", b"Content-Length: 5", b"Transfer-Encoding: chunked"):
        for status in (100, 103, 199, 204, 304):
            head = read(line, first=b"HTTP/1.1 %d X\r\n" % status)
            assert (head.length, head.is_chunked) == (0, False), (status, line)


def test_the_connection_is_kept_as_the_version_and_connection_say() -> None:
    for version, connection, keeps in (
        (b"1", (), True),
        (b"1", (b"close",), False),
        (b"1", (b"Close",), False),
        (b"1", (b"keep-alive, CLOSE",), False),
        (b"1", (b"keep-alive", b"close"), False),
        (b"1", (b"closed",), True),
        (b"0", (), False),
        (b"0", (b"Keep-Alive",), True),
        (b"0", (b"close",), False),
    ):
        lines = [b"Connection: " + value for value in connection]
        head = read(b"Content-Length: 5", *lines, first=b"HTTP/1.%b 200 OK\r\n" % version)
        assert head.keeps_alive is keeps, (version, connection)


def test_headers_of_one_hop_and_those_that_connection_names_stay_behind() -> None:
    head = read(
        b"Connection: keep-alive, X-Secret",
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: keep-alive",
        b"TE: trailers",
        b"Trailer: X-Sum",
        b"Upgrade: h2c",
        b"connection: x-other ,",
        b"X-SECRET: 1",
        b"x-other: 2",
        b"X-Kept: 3",
        b"Content-Length: 5",
    )
    assert head.lines == OK + b"X-Kept: 3\r\nContent-Length: 5\r\n"
    assert head.headers == ((b"x-kept", b"3"), (b"content-length", b"5"))


def test_connection_cannot_take_the_length_away() -> None:
    for named in (b"content-length", b"Content-Length, close"):
        head = read(b"Connection: " + named, b"Content-Length: 5")
        assert head.length == 5, named
        assert head.lines == OK + b"Content-Length: 5\r\n", named


# --- resized -------------------------------------------------------------------------------------


def test_a_resized_head_counts_the_difference_in_both_lengths() -> None:
    for difference, json, body in ((7, 177, 241), (-7, 163, 227), (0, 170, 234)):
        head = read(b"X-A: 1", JSON_LENGTH + b": 170", b"Content-Length: 234").resized(difference)
        assert (head.length, head.status, head.keeps_alive) == (body, 200, True), (difference, json)
        assert head.header(b"inference-header-content-length") == b"%d" % json, (difference, json)
        assert head.header(b"content-length") == b"%d" % body, (difference, json)
        assert read_reply_head(head.lines) == head, (difference, json)


def test_a_resized_head_in_chunks_has_no_length_still_and_one_without_json_no_json() -> None:
    head = read(JSON_LENGTH + b": 170", b"Transfer-Encoding: chunked").resized(3)
    assert (head.length, head.is_chunked) == (None, True)
    assert head.header(b"inference-header-content-length") == b"173"
    assert b"ontent-length" not in head.lines.replace(b"header-content-length", b"")
    plain = read(JSON_LENGTH + b": 0", b"Content-Length: 9").resized(2)
    assert plain.header(b"inference-header-content-length") == b"0"


# --- remembering ---------------------------------------------------------------------------------


def test_the_last_thousand_good_heads_are_read_once() -> None:
    heads = ReplyHeads()
    first = heads.read(OK + b"Content-Length: 0")
    assert heads.read(OK + b"Content-Length: 0") is first
    for length in range(1, 1100):
        assert heads.read(OK + b"Content-Length: %d" % length).length == length
    again = heads.read(OK + b"Content-Length: 0")
    assert again == first
    assert again is not first
    for _ in range(2):
        refusal(BadHead, heads.read, OK + b"no colon")


# --- whatever comes ------------------------------------------------------------------------------

_NAMES = st.one_of(
    st.sampled_from([b"Content-Length", b"content-length", b"Inference-Header-Content-Length"]),
    st.sampled_from([b"Transfer-Encoding", b"Connection", b"Keep-Alive", b"X-A", b"x-b"]),
    st.sampled_from([b"X-A ", b" X-A", b"", b"X\nA"]),
)
_VALUES = st.one_of(
    st.sampled_from([b"5", b"6", b"chunked", b"close", b"x-a, x-b", b"gzip", b"1\r\nX-Evil: 1"]),
    st.binary(max_size=12),
)


@given(
    st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.0 204", b"HTTP/1.1 100 Continue"]),
    st.lists(st.tuples(_NAMES, _VALUES), max_size=6),
)
def test_what_is_passed_on_means_the_same_to_whoever_reads_it_next(
    first: bytes, fields: list[tuple[bytes, bytes]]
) -> None:
    given_head = b"\r\n".join([first, *(name + b": " + value for name, value in fields)])
    try:
        head = read_reply_head(given_head)
    except BadHead:
        return
    assert head.lines.endswith(b"\r\n")
    lines = head.lines.split(b"\r\n")[1:-1]
    assert [line.partition(b":")[0].lower() for line in lines] == [name for name, _ in head.headers]
    assert not any(set(b"\r\n\0") & set(line) for line in lines)
    assert sum(name == b"content-length" for name, _ in head.headers) <= 1
    again = read_reply_head(head.lines)
    assert again.headers == head.headers
    assert again.length == (None if head.is_chunked else head.length)
    assert not again.is_chunked


@given(st.binary(max_size=80))
def test_no_bytes_do_anything_but_read_or_be_refused(data: bytes) -> None:
    for head in (data, OK + data):
        try:
            read_reply_head(head)
        except BadHead:
            pass
