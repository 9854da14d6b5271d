"""Heads and paths: what is read in them is what the next reader, and Triton, reads in them.

The first byte says what the rest is: the head of an answer, that of a request, or a request line.
"""

import re

import h11
import httptools
from fuzz.strict_http import requests

from serve.core.errors import BadRequest, ServegateError
from serve.wire import kserve_http
from serve.wire.http_head import BadHead, read_reply_head
from serve.wire.kserve_http import KServeQuestion, infer_head

_TRITON = re.compile(rb"/v2/models/([^/]+)(?:/versions/([0-9]+))?(?:/(infer|ready|config|stats))?")


def play(data: bytes) -> None:
    """See the module."""
    kind, rest = data[:1], data[1:]
    if kind == b"a":
        _answer(rest)
    elif kind == b"q":
        _request(rest)
    else:
        _path(rest)


def _answer(head: bytes) -> None:
    try:
        read = read_reply_head(head.partition(b"\r\n\r\n")[0])
    except BadHead:
        return
    assert read.lines.endswith(b"\r\n") and b"\r\n\r\n" not in read.lines
    assert read_reply_head(read.lines[:-2]).headers == read.headers
    if read.length is not None:
        assert not read.is_chunked
        grown = read.resized(3)
        assert grown.length == read.length + 3
        assert read_reply_head(grown.lines[:-2]).length in (grown.length, 0)
    if read.status < 200:
        return
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(read.lines + b"\r\n")
    event = reader.next_event()
    assert isinstance(event, h11.Response) and event.status_code == read.status, event


def _request(head: bytes) -> None:
    """Headers that llhttp has read: the lines that are passed on have one meaning."""
    seen: list[tuple[bytes, bytes]] = []

    class Seen:
        def on_header(self, name: bytes, value: bytes) -> None:
            seen.append((name.lower(), value))

        def on_headers_complete(self) -> None:
            done.append(True)

    done: list[bool] = []
    parser = httptools.HttpRequestParser(Seen())
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return
    if not done:
        return
    for plain in (False, True):
        try:
            read = infer_head(seen, plain_answer=plain)
        except BadRequest:
            return
        framing = b"" if read.length is not None else b"Content-Length: 0\r\n"
        size = read.length or 0
        if size > 1 << 20:
            return
        passed = b"POST / HTTP/1.1\r\n" + read.lines + framing + b"\r\n" + b"x" * size
        found = requests(passed)
        assert [len(one.body) for one in found if one.is_whole] == [size], passed
        names = {name for name, _ in found[0].headers}
        assert not names & {b"connection", b"transfer-encoding", b"te", b"upgrade", b"host"}, names
        if read.json_length is not None and read.length is not None and not read.inflates:
            assert 0 <= read.json_length <= read.length


def _path(line: bytes) -> None:
    """A path that is taken for a question about a model is one to Triton, about the same model."""
    method, _, path = line.partition(b" ")
    try:
        asked = kserve_http.parse(method.decode("latin-1"), path)
    except ServegateError:
        return
    if not isinstance(asked, KServeQuestion) or not asked.model:
        assert path.startswith(b"/v2")
        return
    number = int(asked.selector) if re.fullmatch("[0-9]{1,18}", asked.selector) else None
    again = kserve_http.upstream_path(asked.verb, asked.model, number).encode("latin-1")
    match = _TRITON.fullmatch(again)
    assert match is not None, again
    assert match[1] == asked.model.encode("latin-1")
    assert (match[3] or b"metadata").decode() == asked.verb.value
    if number is not None and asked.selector == str(number):
        assert again == path
