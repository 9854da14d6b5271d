"""HTTP/1.1 as strictly as RFC 9112 can be read: the judge of what the gateway passes on.

`requests` reads what a client sends and stops at the first doubt. It is slow and has no limits.
What goes to a replica, and what comes back to a client, is read by h11, a third implementation.
"""

import re
from dataclasses import dataclass, field

import h11

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e\x80-\xff]+) +HTTP/1\.([01])\Z")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*\Z")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z")
_DIGITS = re.compile(rb"[0-9]{1,19}\Z")


@dataclass(slots=True)
class Request:
    """A request whose head is beyond doubt; its body, too, when it `is_whole`."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_last: bool  # no other follows on its connection
    is_whole: bool = True


class Doubt(Exception):
    """Here the bytes may mean two things, or nothing."""


class Incomplete(Exception):
    """Here the bytes end."""


def requests(data: bytes) -> list[Request]:
    """All requests that are beyond doubt; the last one's body may be cut, or broken.

    What is lenient here is so because no reader can take it for anything else: empty lines before a
    request, more than one space before its version, chunks in HTTP/1.0 (RFC 9112 6.1: the
    connection ends behind them).
    """
    found: list[Request] = []
    position = 0
    try:
        while True:
            while data[position : position + 1] in (b"\r", b"\n"):  # RFC 9112 2.2
                position += 1
            one, position = _head(data, position)
            found.append(one)
            one.is_whole = False
            position = _body(one, data, position)
            one.is_whole = True
            if one.is_last:
                return found
    except (Doubt, Incomplete):
        return found


def _head(data: bytes, position: int) -> tuple[Request, int]:
    line, position = _line(data, position)
    match = _LINE.match(line)
    if match is None:
        raise Doubt("request line")
    headers, position = _fields(data, position)
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if (codings and (lengths or codings != [b"chunked"])) or len(lengths) > 1:
        raise Doubt("framing")
    if lengths and not _DIGITS.match(lengths[0]):
        raise Doubt("framing")
    options = {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }
    is_last = b"close" in options or match[3] == b"0"
    return Request(match[1].decode(), match[2], headers, b"", is_last), position


def _body(one: Request, data: bytes, position: int) -> int:
    known = dict(one.headers)
    if b"transfer-encoding" in known:
        one.body, position = _chunks(data, position)
        return position
    size = int(known.get(b"content-length", b"0"))
    if len(data) - position < size:
        raise Incomplete
    one.body = data[position : position + size]
    return position + size


def _line(data: bytes, position: int) -> tuple[bytes, int]:
    end = data.find(b"\n", position)
    if end < 0:
        raise Incomplete
    if data[end - 1 : end] != b"\r" or end == position:
        raise Doubt("a line that ends in LF alone")
    return data[position : end - 1], end + 1


def _fields(data: bytes, position: int) -> tuple[list[tuple[bytes, bytes]], int]:
    headers = []
    while True:
        line, position = _line(data, position)
        if not line:
            return headers, position
        match = _FIELD.match(line)
        if match is None:
            raise Doubt("a header")
        headers.append((match[1].lower(), match[2]))


def _chunks(data: bytes, position: int) -> tuple[bytes, int]:
    body = b""
    while True:
        line, position = _line(data, position)
        match = _CHUNK.match(line)
        if match is None:
            raise Doubt("a chunk's length")
        size = int(match[1], 16)
        if not size:
            return body, _fields(data, position)[1]
        piece, after = data[position : position + size], position + size
        if len(data) < after + 2:
            raise Incomplete
        if data[after : after + 2] != b"\r\n":
            raise Doubt("a chunk that does not end")
        body, position = body + piece, after + 2


@dataclass(slots=True)
class Answer:
    """An answer as a client reads it."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    is_complete: bool = False
    interim: list[int] = field(default_factory=list)

    @property
    def error(self) -> str:
        """The code of an error of the gateway's own; empty for every other answer."""
        return self.headers.get(b"servegate-error", b"").decode()


def answers(data: bytes, methods: list[str], *, is_over: bool) -> list[Answer]:
    """Everything in what a client has received; the last may be incomplete. Raises on nonsense.

    `is_over` says whether the connection was closed in an orderly way behind the bytes.
    """
    found: list[Answer] = []
    while data:
        method = methods[len(found)] if len(found) < len(methods) else "POST"
        one, data = answer(data, "GET" if method == "CONNECT" else method, is_over=is_over)
        found.append(one)
        if not one.is_complete:
            break
    return found


def answer(data: bytes, method: str, *, is_over: bool) -> tuple[Answer, bytes]:
    """The first answer in the bytes, and what stands behind it; see `answers`."""
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 24)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(data)
    one = Answer(0, {})
    has_closed = False
    while True:
        event = reader.next_event()
        if isinstance(event, h11.InformationalResponse):
            one.interim.append(event.status_code)
        elif isinstance(event, h11.Response):
            one.status = event.status_code
            names = [name for name, _ in event.headers]
            assert names.count(b"servegate-version") <= 1
            one.headers = dict(event.headers)
        elif isinstance(event, h11.Data):
            one.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            one.is_complete = True
            return one, b"" if has_closed else reader.trailing_data[0]
        elif event is h11.NEED_DATA and is_over and not has_closed:
            has_closed = True
            try:
                reader.receive_data(b"")
                event = reader.next_event()
            except h11.RemoteProtocolError:
                return one, b""
            one.is_complete = isinstance(event, h11.EndOfMessage)
            return one, b""
        else:
            return one, b""
