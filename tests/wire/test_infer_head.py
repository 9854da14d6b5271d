"""Heads of predict requests: what they say of the body, and what of them is passed on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from serve.core.access import Access
from serve.core.errors import BadRequest, ExpectationFailed, Unauthenticated
from serve.wire.kserve_http import InferHead, end_to_end, infer_head
from serve.wire.request_ids import fresh_ids, usable

LENGTH = b"inference-header-content-length"
KEY = b"Bearer sg_aaaa_0123456789abcdef"


def lines_of(*headers: tuple[bytes, bytes], plain_answer: bool = False) -> list[bytes]:
    """What is passed on of these headers, line by line."""
    lines = infer_head(list(headers), plain_answer=plain_answer).lines
    assert lines == b"" or lines.endswith(b"\r\n")
    return lines.split(b"\r\n")[:-1]


def test_a_head_says_all_that_its_call_needs_to_know() -> None:
    head = infer_head(
        [
            (b"host", b"gateway"),
            (b"content-type", b"application/octet-stream"),
            (LENGTH, b"170"),
            (b"content-length", b"234"),
        ]
    )
    assert head.lines == (
        b"content-type: application/octet-stream\r\n"
        b"inference-header-content-length: 170\r\n"
        b"Content-Length: 234\r\n"
    )
    assert (head.length, head.json_length) == (234, 170)
    assert (head.inflates, head.expects_continue) == (False, False)


def test_without_headers_the_body_comes_in_chunks_and_all_of_it_is_json() -> None:
    assert infer_head([]) == InferHead(b"", None, None, False, False)


def test_headers_of_one_hop_and_what_only_a_gateway_may_claim_stay_behind() -> None:
    left = [
        (b"connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authorization", b"Basic x"),
        (b"proxy-authenticate", b"Basic"),
        (b"proxy-connection", b"close"),
        (b"te", b"trailers"),
        (b"trailer", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"host", b"a"),
        (b"expect", b"100-continue"),
        (b"servegate-version", b"9; by=caller"),
        (b"servegate-error", b"none"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"x-forwarded-host", b"evil"),
        (b"x-real-ip", b"10.0.0.1"),
        (b"forwarded", b"for=10.0.0.1"),
    ]
    assert lines_of((b"x-b", b"1"), *left, (b"x-b", b"2")) == [b"x-b: 1", b"x-b: 2"]
    kept = ((b"x-b", b"1"), (b"content-type", b"a/b"), (b"x-b", b"2"), (LENGTH, b"7"))
    assert end_to_end((*kept[:2], *left, (b"content-length", b"5"), *kept[2:])) == kept


def test_headers_that_connection_names_are_not_passed_on() -> None:
    for connection in (
        [b"X-Secret, x-other"],
        [b"close", b" X-Secret ,x-other"],
        [b"x-other", b"keep-alive, X-SECRET"],
        [b"close, X-Secret", b" X-Other ,"],
    ):
        named = [(b"connection", value) for value in connection]
        headers = [(b"x-secret", b"1"), *named, (b"x-other", b"2"), (b"x-kept", b"3")]
        assert lines_of(*headers) == [b"x-kept: 3"], connection
        assert end_to_end(tuple(headers)) == ((b"x-kept", b"3"),), connection


def test_connection_cannot_take_away_what_says_how_the_body_is_made_nor_the_credential() -> None:
    for header in (
        (b"content-length", b"5"),
        (b"content-encoding", b"gzip"),
        (b"inference-header-content-length", b"3"),
        (b"authorization", KEY),
    ):
        plain = infer_head([(b"x-b", b"1"), header])
        for named in (header[0], header[0] + b", x-a"):
            found = infer_head([(b"x-b", b"1"), header, (b"connection", named)])
            assert found == plain, (header, named)


NAMES = [
    *(b"x-a", b"x-b", b"te", b"host", b"accept", b"traceparent", b"connection", b"keep-alive"),
    *(b"content-type", b"content-encoding", b"accept-encoding"),
    *(b"authorization", b"x-request-id", b"x-forwarded-for", b"servegate-x"),
]
VALUES = [
    *(b"x-a", b"close", b"x-b, close", b"gzip", b"te", b"a/b", b"", b"accept"),
    *(b"authorization", b"x-request-id", b"Bearer sg_aaaa_secret", b"bearer  sg_", b"Bearer other"),
]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8))
def test_predict_requests_and_questions_pass_the_same_headers_on(
    headers: list[tuple[bytes, bytes]],
) -> None:
    kept = [b"%b: %b" % header for header in end_to_end(tuple(headers))]
    assert lines_of(*headers) == kept


def test_a_body_is_never_called_a_form_and_every_other_media_type_is_passed_on() -> None:
    """Triton 2.51 parses forms; one of 12 MB crashes it."""
    for form in (
        b"application/x-www-form-urlencoded",
        b"Application/X-WWW-Form-Urlencoded",
        b"application/x-www-form-urlencoded; charset=utf-8",
    ):
        assert lines_of((b"content-type", form), (b"x-b", b"1")) == [b"x-b: 1"], form
    for media in (b"application/json", b"multipart/form-data", b"", b"x"):
        assert lines_of((b"content-type", media)) == [b"content-type: " + media], media


def test_triton_is_asked_to_compress_only_where_the_client_asks_and_nothing_is_restored() -> None:
    header = (b"accept-encoding", b"gzip")
    assert lines_of(header) == [b"accept-encoding: gzip"]
    assert lines_of(header, plain_answer=True) == []
    named = ((b"connection", b"x-a"), (b"x-a", b"1"))
    assert lines_of(header, *named, plain_answer=True) == []


def test_a_head_says_whether_triton_will_inflate_the_body() -> None:
    for encoding, inflates in (
        *((b"gzip", True), (b"deflate", True), (b"GZip", True)),
        (b"gzip \t", True),  # llhttp leaves the space behind a value in place
        *((b"identity", False), (b"br", False), (b"", False)),
    ):
        head = infer_head([(b"content-encoding", encoding)])
        assert head.inflates is inflates, encoding
        assert head.lines == b"content-encoding: %b\r\n" % encoding, encoding
    # Triton reads one of two, and a body that it inflates has to be watched.
    for encodings in ((b"gzip", b"identity"), (b"identity", b"gzip")):
        assert infer_head([(b"content-encoding", one) for one in encodings]).inflates, encodings


def test_a_head_says_whether_the_client_waits_before_it_sends() -> None:
    for value in (b"100-continue", b"100-Continue", b" 100-continue "):
        assert infer_head([(b"expect", value)]).expects_continue, value
    for value in (b"200-ok", b"", b"100-continue, 200-ok", b"100"):
        refusal(ExpectationFailed, infer_head, [(b"expect", value)])


def test_the_json_may_be_any_part_of_the_body() -> None:
    for text, length in (
        *((b"2", 2), (b"0", 0), (b"4", 4), (b"004", 4)),
        *((b"2 ", 2), (b"2\t", 2)),  # llhttp leaves the space behind a value in place
    ):
        assert infer_head([(b"content-length", b"4"), (LENGTH, text)]).json_length == length, text


def test_a_length_of_the_json_that_cannot_be_is_a_bad_request() -> None:
    for text in (b"5", b"-1", b"+1", b"two", b"", b"1.0", b"0x2", b"9" * 5000):
        refusal(BadRequest, infer_head, [(b"content-length", b"4"), (LENGTH, text)])
        refusal(BadRequest, infer_head, [(LENGTH, text), (b"content-length", b"4")])
    error = refusal(BadRequest, infer_head, [(b"content-length", b"4"), (LENGTH, b"5")])
    assert "is 5, but the body has 4 bytes" in str(error)


def test_a_length_of_the_json_given_twice_is_a_bad_request() -> None:
    for second in (b"2", b"3", b"x"):
        headers = [(LENGTH, b"2"), (LENGTH, second), (b"content-length", b"9")]
        assert "once" in str(refusal(BadRequest, infer_head, headers)), second


def test_the_length_of_the_json_counts_what_is_inside_a_compressed_body_or_its_chunks() -> None:
    headers = [(LENGTH, b"500"), (b"content-encoding", b"gzip"), (b"content-length", b"4")]
    assert infer_head(headers).json_length == 500
    head = infer_head([(LENGTH, b"500"), (b"transfer-encoding", b"chunked")])
    assert (head.length, head.json_length) == (None, 500)


def test_a_key_of_ours_is_kept_apart_and_a_credential_for_somebody_else_is_passed_on() -> None:
    for key in (KEY, b"bearer " + KEY[7:], b"BEARER   " + KEY[7:], KEY + b" "):
        head = infer_head([(b"x-b", b"1"), (b"authorization", key)])
        assert (head.lines, head.credential) == (b"x-b: 1\r\n", key), key
    for other in (b"Basic eDp5", b"Bearer eyJhbGciOi", b"Digest x", b""):
        head = infer_head([(b"authorization", other)])
        assert (head.lines, head.credential) == (b"authorization: %b\r\n" % other, other), other


def test_several_credentials_are_no_key_together_and_ours_still_stays_here() -> None:
    for order in ([b"Basic x", KEY], [KEY, b"Basic x"], [KEY, KEY]):
        head = infer_head([(b"authorization", one) for one in order])
        assert b"sg_" not in head.lines
        assert head.credential == b", ".join(order)
        access = Access({}, is_required=True, wall=lambda: 0.0)
        with pytest.raises(Unauthenticated):
            access.who(head.credential)


def test_a_request_id_is_kept_when_it_is_printable_and_short_and_passed_on_in_any_case() -> None:
    for value, identity in (
        *((b"r-1", b"r-1"), (b"two words", b"two words"), (b" padded\t", b"padded")),
        *((b"x" * 128, b"x" * 128), (b"x" * 129, b"")),
        *((b"", b""), (b"  ", b""), (b"\xc3\xa9", b""), (b"a\tb", b"")),
    ):
        head = infer_head([(b"x-request-id", value)])
        assert (head.request_id, head.lines) == (identity, b"x-request-id: %b\r\n" % value), value
    given = [(b"x-request-id", one) for one in (b"", b"r-1", b"r-2")]
    assert infer_head(given).request_id == b"r-1", "the first usable one counts"


def test_ids_that_are_made_up_are_all_different_and_usable() -> None:
    made = [next(ids) for ids in (fresh_ids(), fresh_ids()) for _ in range(1000)]
    assert len(set(made)) == 2000
    assert all(usable(one) == one for one in made)


def test_an_id_never_breaks_a_line() -> None:
    for value in (b"a\r\nx: 1", b"a\nb", b"a\r", b"a\x00", b"a\x7f"):
        assert usable(value) == b""


def test_of_a_flat_request_no_part_is_binary_and_nothing_is_inflated() -> None:
    """Triton's generate reads neither header, and refuses what is compressed."""
    for text in (b"5", b"x", b"-1"):
        headers = [(LENGTH, text), (LENGTH, text), (b"content-encoding", b"gzip")]
        head = infer_head([*headers, (b"content-length", b"4")], is_flat=True)
        assert (head.json_length, head.inflates) == (None, False), text
        assert head.lines.count(b"\r\n") == 4, text
