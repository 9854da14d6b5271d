"""Heads that are known, and what varies in them: every head of a pattern means what it says."""

import httptools
from hypothesis import given
from hypothesis import strategies as st

from serve.core.calls import Verb
from serve.wire.known_heads import KnownHead, Pattern, pattern_of
from serve.wire.kserve_http import KServeQuestion, infer_head

LINE = b"POST /v2/models/m/infer HTTP/1.1"
ASKED = KServeQuestion(Verb.INFER, "m")
FIXED = [(b"Host", b"x"), (b"Content-Length", b"5"), (b"X-Percent", b"50%d")]


def head(*headers: tuple[bytes, bytes], line: bytes = LINE) -> bytes:
    return b"\r\n".join([line, *(b"%b: %b" % one for one in headers), b"", b""])


class Reader:
    """What llhttp makes of a head."""

    def __init__(self, data: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = False
        httptools.HttpRequestParser(self).feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def known(start: bytes) -> KnownHead:
    headers = Reader(start).headers
    return KnownHead(ASKED, headers, infer_head(headers))


def pattern(before: bytes, start: bytes) -> Pattern | None:
    return pattern_of(before, start, known(start))


def traced(value: bytes, *more: tuple[bytes, bytes]) -> bytes:
    return head(FIXED[0], (b"Traceparent", value), *FIXED[1:], *more)


def test_a_head_of_a_pattern_is_read_with_its_own_value() -> None:
    found = pattern(traced(b"00-aa-01"), traced(b"00-bb-01"))
    assert found is not None
    wanted = known(traced(b"00-c%d-1"))
    assert found.read(traced(b"00-c%d-1")) == (wanted.headers, wanted.head.lines, b"")


def test_several_values_may_vary_and_equal_lines_are_told_apart() -> None:
    def twice(a: bytes, b: bytes) -> bytes:
        return traced(b"1", (b"X-A", b"1"), (b"X-A", a), (b"X-A", b"1"), (b"x-b", b))

    def left_behind(a: bytes, b: bytes) -> bytes:
        return head((b"X-Forwarded-For", a), *FIXED, (b"X-A", b), (b"Servegate-Error", a))

    def looks_like_a_line(a: bytes, _: bytes) -> bytes:
        return traced(b"1", (b"Content-Type", b"a/b; x-a: 1"), (b"X-A", a))

    for start in (twice, left_behind, looks_like_a_line):
        found = pattern(start(b"2", b"y"), start(b"1", b"z"))
        assert found is not None
        wanted = known(start(b"%", b"w"))
        assert found.read(start(b"%", b"w")) == (wanted.headers, wanted.head.lines, b"")
    assert b"%" not in known(left_behind(b"%", b"w")).head.lines.replace(b"50%d", b"")


def test_a_hole_takes_visible_characters_and_no_more_than_were_seen() -> None:
    found = pattern(traced(b"00-aa-01"), traced(b"00-bb-01"))
    assert found is not None
    for value in (
        *(b"", b"a b", b"a\tb", b"a\r\nX: 1", b"a\nX: 1", b"a\r", b"\x00", b"\x7f"),
        *(b"\xe9", b"123456789"),
    ):
        assert found.read(traced(value)) is None, value


def test_heads_that_differ_in_more_than_values_have_no_pattern() -> None:
    for before, start in (
        (traced(b"1"), traced(b"1")),
        (traced(b"1"), traced(b"2").replace(b"Traceparent", b"Tracestate")),
        (traced(b"1"), traced(b"2").replace(b"Traceparent", b"traceparent")),
        (traced(b"1"), traced(b"2").replace(b"HTTP/1.1", b"HTTP/1.0")),
        (traced(b"1"), traced(b"2", (b"X-A", b"1"))),
        (traced(b"1"), traced(b"two words")),
        (traced(b"1"), traced(b"2").replace(b"Length: 5", b"Length: 6")),
        (traced(b"1"), traced(b"2", (b"Connection", b"keep-alive"))[:-2] + b"\r\n"),
        (
            traced(b"1", (b"Connection", b"traceparent")),
            traced(b"2", (b"Connection", b"traceparent")),
        ),
        (b"POST /", traced(b"2")),
        (b"", traced(b"2")),
    ):
        assert pattern(before, start) is None, before


def test_what_means_something_may_not_vary() -> None:
    for name in (
        *(b"Host", b"Content-Length", b"Content-Type", b"Content-Encoding", b"Accept-Encoding"),
        *(b"TE", b"Connection", b"Keep-Alive", b"Inference-Header-Content-Length"),
        *(b"Proxy-Connection", b"Authorization"),
    ):
        fixed = [one for one in FIXED if one[0] not in (b"Content-Length", name)]
        assert pattern(head(*fixed, (name, b"1")), head(*fixed, (name, b"2"))) is None, name
    for name, value, other in (
        (b"Expect", b"100-continue", b"100-Continue"),
        (b"Transfer-Encoding", b"chunked", b"gzip"),
    ):
        start = head(FIXED[0], (name, value))
        assert pattern(start.replace(value, other), start) is None, name


def test_a_request_id_may_vary_and_names_its_call() -> None:
    def start(identity: bytes) -> bytes:
        return head(*FIXED, (b"X-Request-Id", identity), (b"Traceparent", identity))

    found = pattern(start(b"x" * 130), start(b"r-1"))
    assert found is not None
    assert [found.read(start(value))[2] for value in (b"r-2", b"r" * 128)] == [b"r-2", b"r" * 128]
    assert found.read(start(b"r" * 129))[2] == b""


def test_a_request_id_that_does_not_vary_names_the_calls_of_a_pattern_and_two_do_not() -> None:
    more = (b"X-Request-Id", b"r-1")
    found = pattern(traced(b"1", more), traced(b"2", more))
    assert found is not None and found.read(traced(b"3", more))[2] == b"r-1"
    two = [more, (b"x-request-id", b"r-2")]
    assert pattern(traced(b"1", *two), traced(b"2", *two)) is None


def test_what_a_pattern_knows_of_a_credential_is_that_of_its_heads() -> None:
    ours, theirs = ((b"Authorization", b"Bearer sg_%b_secret" % who) for who in (b"aaaa", b"bbbb"))
    found = pattern(traced(b"1", ours), traced(b"2", ours))
    assert found is not None and found.known.head.credential == ours[1]
    assert found.read(traced(b"3", theirs)) is None
    assert b"sg_" not in found.read(traced(b"3", ours))[1]


NAMES = [
    *(b"Traceparent", b"X-A", b"x-a", b"X-Request-Id", b"Content-Type", b"Accept"),
    *(b"Authorization", b"X-Forwarded-For", b"Servegate-A", b"Forwarded"),
]
VALUES = st.one_of(
    st.text("0aZ-%!~:,", max_size=6).map(str.encode),
    st.sampled_from([b"a b", b"\t", b"1\r\nX-A: 2", b"\xe9", b"1\r\n\r\n", b"1\nX-A: 2"]),
)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES, VALUES, VALUES), max_size=5),
)
def test_whatever_a_pattern_reads_llhttp_reads_as_the_same(
    fields: list[tuple[bytes, bytes, bytes, bytes]],
) -> None:
    heads = [head(*FIXED, *((one[0], one[n]) for one in fields)) for n in (1, 2, 3)]
    try:
        found = pattern(heads[0], heads[1])
    except httptools.HttpParserError:
        return
    read = None if found is None else found.read(heads[2])
    if read is not None:
        reader = Reader(heads[2])
        assert reader.is_complete
        wanted = infer_head(reader.headers)
        assert read == (reader.headers, wanted.lines, wanted.request_id)
