"""Seeds of HTTP: requests, answers and heads; the cases C4, C14 and C16 by name."""

import gzip
from collections.abc import Iterator

from fuzz.plant_clients import tritonclient_http

Seeds = Iterator[tuple[str, bytes]]
_POST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
_GOOD = _POST + b"Content-Length: 2\r\n\r\n{}"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_BODY = b'{"model_name":"r--0a1b","model_version":"3","outputs":[]}'


def http_requests() -> Seeds:
    yield "tritonclient-infer", tritonclient_http(request_id="1")
    yield "tritonclient-infer-gzip", tritonclient_http(request_compression_algorithm="gzip")
    yield "tritonclient-infer-sequence", tritonclient_http(sequence_id=7, sequence_start=True)
    yield "one", _GOOD
    yield "pipelined", _GOOD + _GOOD + b"GET /v2/models/m HTTP/1.1\r\nHost: x\r\n\r\n" + _GOOD
    yield (
        "questions",
        b"".join(
            b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path
            for path in (
                b"/v2",
                b"/v2/health/live",
                b"/v2/models/m/ready",
                b"/v2/models/r/config",
                b"/x",
            )
        ),
    )
    traced = _POST + b"Traceparent: 00-%b-01\r\nX-A: b%%b\r\nContent-Length: 2\r\n\r\n{}"
    yield (
        "heads-that-vary",
        b"".join(traced % value for value in (b"1", b"22", b"3", b"%b", b"\xff")),
    )
    yield "heads-that-repeat", _GOOD * 4 + b"x" + _GOOD
    yield "head-request", b"HEAD /v2/models/m HTTP/1.1\r\nHost: x\r\n\r\n" + _GOOD
    yield "chunked", _CHUNKED + b"1\r\n{\r\n1;a=b\r\n}\r\n0\r\nX-A: b\r\n\r\n" + _GOOD
    yield "http-1.0", b"POST /v2/models/r/versions/3/infer HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
    yield "upgrade-h2c", _POST + (
        b"Connection: Upgrade, HTTP2-Settings, x-a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
        b"X-A: b\r\nContent-Length: 2\r\n\r\n{}"
    ) + _GOOD  # fmt: skip
    yield (
        "sequence",
        (
            b"POST /v2/models/s/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b'Content-Length: 32\r\n\r\n{"parameters":{"sequence_id":7}}'
        ),
    )
    for word in (b"stop", b"unknown", b"eof", b"short", b"chunks", b"close"):
        body = b"@" + word
        one = b"POST /v2/models/r/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        yield f"triton-{word.decode()}", one + body + _GOOD
        if word in (b"stop", b"unknown", b"eof"):
            yield f"triton-{word.decode()}-two-replicas", one.replace(b"/r/", b"/m/") + body + _GOOD
    yield from _c14()
    yield from _c16()


def _c14() -> Seeds:
    """Oversize, and lengths that lie."""
    yield "c14-head-too-large", _POST + b"X-A: " + b"a" * 1300 + b"\r\n\r\n"
    yield "c14-head-too-large-without-end", _POST + b"X-A: " + b"a" * 3000
    yield "c14-body-too-large", _POST + b"Content-Length: 2801\r\n\r\n" + bytes(3001)
    yield "c14-body-too-large-chunked", _CHUNKED + b"bba\r\n" + bytes(0xBBA) + b"\r\n0\r\n\r\n"
    yield "c14-too-many-chunks", _CHUNKED + b"1\r\n{\r\n" * 41 + b"0\r\n\r\n"
    yield "c14-trailers-without-end", _CHUNKED + b"0\r\n" + b"X-A: b\r\n" * 300
    bomb = gzip.compress(bytes(100_000))
    head = _POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    yield "c14-gzip-bomb", head + bomb
    yield "c14-gzip-broken", head + bytes(reversed(bomb))
    for title, value in (
        ("beyond", b"3"), ("negative", b"-1"), ("huge", b"18446744073709551616"), ("word", b"two"),
        ("twice", b"2\r\nInference-Header-Content-Length: 1"), ("sign", b"+2"), ("empty", b""),
    ):  # fmt: skip
        line = b"Inference-Header-Content-Length: %b\r\n" % value
        yield f"c14-json-length-{title}", _POST + line + b"Content-Length: 2\r\n\r\n{}"
    line = b"Inference-Header-Content-Length: 9\r\n"
    yield (
        "c14-json-length-beyond-chunks",
        _POST + line + _CHUNKED[len(_POST) :] + b"2\r\n{}\r\n0\r\n\r\n",
    )
    deep = b"[" * 1400 + b"]" * 1400
    yield (
        "c14-json-depth",
        (
            b"POST /v2/models/s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(deep)
            + deep
        ),
    )


def _c16() -> Seeds:
    """Smuggling: one interpretation, or a refusal."""
    smuggled = b"GET /v2/models/m HTTP/1.1\r\nHost: x\r\nX: "
    for title, lines in (
        ("length-and-chunks", b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        ("chunks-and-length", b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
        ("two-lengths", b"Content-Length: 2\r\nContent-Length: 4\r\n"),
        ("same-length-twice", b"Content-Length: 4\r\nContent-Length: 4\r\n"),
        ("length-list", b"Content-Length: 4, 4\r\n"),
        ("length-plus", b"Content-Length: +4\r\n"),
        ("length-negative", b"Content-Length: -4\r\n"),
        ("length-hex", b"Content-Length: 0x4\r\n"),
        ("length-space", b"Content-Length: 4 4\r\n"),
        ("length-huge", b"Content-Length: 18446744073709551620\r\n"),
        ("length-space-before-colon", b"Content-Length : 4\r\n"),
        ("length-folded", b"Content-Length:\r\n 4\r\n"),
        ("coding-folded", b"Transfer-Encoding:\r\n chunked\r\n"),
        ("coding-space-before-colon", b"Transfer-Encoding : chunked\r\nContent-Length: 4\r\n"),
        ("coding-unknown", b"Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n"),
        ("coding-list", b"Transfer-Encoding: gzip, chunked\r\n"),
        ("coding-twice", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        ("coding-tab", b"Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n"),
        ("coding-vertical-tab", b"Transfer-Encoding: \x0bchunked\r\nContent-Length: 4\r\n"),
        ("length-named-by-connection", b"Connection: content-length\r\nContent-Length: 4\r\n"),
        ("host-named-by-connection", b"Connection: host\r\nContent-Length: 4\r\n"),
        ("bare-lf", b"X-A: b\nContent-Length: 4\r\n"),
        ("bare-cr", b"X-A: b\rContent-Length: 4\r\n"),
        ("nul", b"X-A: b\0\r\nContent-Length: 4\r\n"),
        ("no-name", b": b\r\nContent-Length: 4\r\n"),
        ("no-colon", b"X-A\r\nContent-Length: 4\r\n"),
    ):
        yield f"c16-{title}", _POST + lines + b"\r\n0\r\n\r\n" + smuggled + _GOOD
    yield "c16-absolute-form", _GOOD.replace(b"POST /", b"POST http://other/")
    yield "c16-version-0.9", _GOOD.replace(b"HTTP/1.1", b"HTTP/0.9")
    yield "c16-version-2.0", _GOOD.replace(b"HTTP/1.1", b"HTTP/2.0")
    yield "c16-two-spaces", _GOOD.replace(b" HTTP", b"  HTTP")
    yield "c16-bare-lf-lines", _GOOD.replace(b"\r\n", b"\n")
    yield (
        "c16-chunks-in-http-1.0",
        _CHUNKED.replace(b"/1.1", b"/1.0") + b"2\r\n{}\r\n0\r\n\r\n" + _GOOD,
    )
    yield (
        "c16-body-broken-behind-an-answer",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: d\r\n\r\n",
    )
    yield "c16-chunk-broken-behind-an-answer", _CHUNKED.replace(b"/infer", b"") + b"x\r\n"
    question = b"GET /v2/models/m HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: d\r\n\r\n"
    yield "c16-coding-unknown-of-a-question", question + _GOOD
    yield "c16-chunk-huge", _CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n"
    yield "c16-chunk-negative", _CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n"
    yield "c16-chunk-hex", _CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n"
    yield "c16-chunk-without-crlf", _CHUNKED + b"2\r\n{}0\r\n\r\n" + _GOOD
    yield "c16-chunk-bare-lf", _CHUNKED + b"2\n{}\r\n0\r\n\r\n" + _GOOD
    yield "c16-chunk-extension-lf", _CHUNKED + b"2;a\n{}\r\n0\r\n\r\n" + _GOOD
    yield "c16-trailer-length", _CHUNKED + b"2\r\n{}\r\n0\r\nContent-Length: 40\r\n\r\n" + _GOOD


def http_answers() -> Seeds:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    sized = head + b"Content-Length: %d\r\n\r\n" % len(_BODY)
    yield "good", sized + _BODY
    yield (
        "chunks",
        head
        + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (
            len(_BODY),
            _BODY,
        ),
    )
    yield "until-closed", b"HTTP/1.0 200 OK\r\n\r\n" + _BODY
    yield "interim", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\n\r\n" + sized + _BODY
    yield "refusal", b'HTTP/1.1 503 X\r\nContent-Length: 28\r\n\r\n{"error":"Server not ready"}'
    yield "no-content", b"HTTP/1.1 204 No Content\r\n\r\n"
    yield "not-modified", b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n"
    yield "json-length", head + (
        b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%b"
    ) % (
        len(_BODY), len(_BODY) + 4, _BODY + b"\0\1\2\3",
    )  # fmt: skip
    yield "c4-cut-in-the-body", sized + _BODY[:-9]
    yield "c4-cut-in-the-head", head
    yield "c4-longer-than-its-length", sized + _BODY + b"x"
    yield "c4-cut-in-a-chunk", head + b"Transfer-Encoding: chunked\r\n\r\n39\r\n" + _BODY[:20]
    yield "c4-without-last-chunk", head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    yield (
        "c4-bad-json-length",
        head + b"Inference-Header-Content-Length: -7\r\nContent-Length: 2\r\n\r\n{}",
    )
    yield "c4-two-lengths", head + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}"
    yield (
        "c4-length-and-chunks",
        sized[:-2] + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    )
    yield "c4-coding-list", head + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    yield "c4-switching", b"HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n" + sized + _BODY
    yield "c4-nothing", b""
    yield "c4-not-http", b"SSH-2.0-x\r\n\r\n"
    yield "c4-two-answers", sized + _BODY + sized + _BODY


def http_heads() -> Seeds:
    yield (
        "answer",
        b"aHTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\nX-A: b\r\n\r\n",
    )
    yield "answer-chunked", b"aHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n"
    yield (
        "answer-length-named-by-connection",
        (b"aHTTP/1.1 200 OK\r\nContent-Length:0\r\nConnection:content-length\r\n"),
    )
    yield "answer-control-characters", b"aHTTP/1.1 200 \0\0\r\nX-A: \x0b\r\n"
    yield "answer-old", b"aHTTP/1.0 404 Not Found\r\nConnection: close, x-a\r\nX-A: b\r\n\r\n"
    yield (
        "request",
        (
            b"qHost: x\r\nContent-Length: 5\r\nInference-Header-Content-Length: 2\r\n"
            b"Connection: x-a\r\nX-A: b\r\nAccept-Encoding: gzip\r\n\r\n"
        ),
    )
    yield (
        "request-form",
        b"qContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    for number, path in enumerate(
        (b"m", b"m/infer", b"m/versions/1/infer", b"m/versions/stable/ready", b"a%2Fb/config",
         b"m/versions/01/stats", b"m/infer/", b"m/versions/1/infer\n",
         b"/infer", b"m/versions//infer", b"\xff/infer")
    ):  # fmt: skip
        method = b"POST" if b"infer" in path else b"GET"
        yield f"path-{number}", b"p%b /v2/models/%b" % (method, path)
