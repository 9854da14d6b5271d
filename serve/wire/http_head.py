"""The head of an HTTP/1.1 answer: read once, kept as the bytes that are passed on.

A server that answers predict calls writes few different heads, so `ReplyHeads` remembers them: one
look-up replaces reading. Framing is read strictly (RFC 9112 6.3): what leaves a doubt about where
the body ends is `BadHead`, and the connection is not used again.
"""

import re
from dataclasses import dataclass, replace

from serve.core.calls import Headers, Reply

LONGEST = 64 << 10  # bytes of a head
_REMEMBERED = 1024
_LONGEST_REMEMBERED = 4096  # bytes of a head
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?\Z")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_LENGTH = re.compile(rb"[0-9]{1,18}\Z")
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade")
)
_COUNTS = frozenset((b"content-length", b"inference-header-content-length"))
_NO_BODY = frozenset((204, 304))
_REASONS = {
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    417: b"Expectation Failed",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}


class BadHead(Exception):
    """The head is not one of HTTP/1.1, or does not say where its body ends; says why."""


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What the head says. `length` is None when chunks or the end of the connection end the body.

    `lines` is the status line and the end-to-end headers, with Content-Length, without
    Transfer-Encoding, as they are passed on; the empty line is left to whoever passes them on.
    """

    status: int
    length: int | None
    is_chunked: bool
    keeps_alive: bool
    headers: Headers
    lines: bytes

    def header(self, name: bytes) -> bytes:
        """The first value of an end-to-end header, by its lower-case name; empty if missing."""
        return next((value for key, value in self.headers if key == name), b"")

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.header(b"content-type").lower().startswith(b"text/event-stream")

    def resized(self, difference: int) -> "ReplyHead":
        """The head of the same answer whose JSON has become longer by `difference` bytes."""
        headers = tuple(
            (name, b"%d" % (int(value) + difference) if name in _COUNTS and int(value) else value)
            for name, value in self.headers
        )
        first = self.lines[: self.lines.index(b"\n") + 1]
        return replace(
            self,
            length=None if self.length is None else self.length + difference,
            headers=headers,
            lines=first + b"".join(b"%b: %b\r\n" % header for header in headers),
        )


class ReplyHeads:
    """Reads heads, and remembers the last thousand."""

    def __init__(self) -> None:
        self._known: dict[bytes, ReplyHead] = {}

    def read(self, head: bytes) -> ReplyHead:
        """The meaning of a head, given without its empty line; `BadHead` if there is none."""
        known = self._known.get(head)
        if known is None:
            known = read_reply_head(head)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if len(head) <= _LONGEST_REMEMBERED:
                self._known[head] = known
        return known


def read_reply_head(head: bytes) -> ReplyHead:
    """The meaning of a head, given without its empty line; `BadHead` if there is none."""
    first, *rest = head.split(b"\r\n")
    match = _STATUS_LINE.match(first)
    if match is None:
        raise BadHead("the response is not HTTP/1.1")
    status = int(match[2])
    fields = [_field(line) for line in rest if line]
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if len(lengths) > 1 or any(
        not _LENGTH.match(value) for name, value in fields if name in _COUNTS
    ):
        raise BadHead("the response's Content-Length is not a single number")
    if codings and (codings != [b"chunked"] or lengths or match[1] == b"0"):
        raise BadHead("the response's Transfer-Encoding cannot be passed on")
    options = {
        word.strip().lower()
        for name, value in fields
        if name == b"connection"
        for word in value.split(b",")
    } - _COUNTS  # nothing can take the lengths away
    length = int(lengths[0]) if lengths else None
    if status in _NO_BODY or status < 200:
        length = 0
    keeps = b"close" not in options if match[1] == b"1" else b"keep-alive" in options
    kept = tuple(
        (name, value)
        for name, value in fields
        if name not in _HOP_BY_HOP and name not in options and name != b"transfer-encoding"
    )
    lines = b"HTTP/1.1 %d %b\r\n" % (status, first.partition(b" ")[2][4:])
    known = {name for name, _ in kept}
    lines += b"".join(line + b"\r\n" for line in rest if line.partition(b":")[0].lower() in known)
    return ReplyHead(
        status=status,
        length=length,
        is_chunked=bool(codings) and length is None,
        keeps_alive=keeps and (length is not None or bool(codings)),
        headers=kept,
        lines=lines,
    )


def written(reply: Reply, *, keeps_alive: bool) -> bytes:
    """An answer of our own, as it is written."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (reply.status, _REASONS.get(reply.status, b""))]
    lines += [b"%b: %b\r\n" % header for header in reply.headers]
    lines.append(b"content-length: %d\r\n" % len(reply.body))
    lines.append(b"\r\n" if keeps_alive else b"connection: close\r\n\r\n")
    return b"".join((*lines, reply.body))


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not _TOKEN.match(name) or not _VALUE.match(value):
        raise BadHead("a header of the response is malformed")
    return name.lower(), value.strip(b" \t")
