"""HTTP/1.1 answers as the sender reads them: what a head means for a call, and the body's end.

A server writes few different heads, so `HttpHeads` remembers them: one look-up replaces reading.
The gateway's differ in the request's id alone, which is cut out before the look-up. An answer that
comes whole in one piece, as nearly all do, needs no `HttpResponse`; that one is for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import httptools

from serve.wire.http_head import LONGEST, BadHead, read_reply_head
from serve.wire.request_ids import TOLD
from serve.workbench.loadtest.record import RIGHT

HEAD_END = b"\r\n\r\n"
_MOST_INTERIM = 8  # answers with a status below 200 before the real one
_REMEMBERED = 1024
_LONGEST_REMEMBERED = 4096  # bytes of a head
_ID_LINE = b"\r\n%b:" % TOLD
_VERSION = b'"model_version":"'
_VERSION_WITHIN = 2048  # bytes of an answer in which Triton names the version
_LONGEST_VERSION = 64


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says. `outcome` is `RIGHT` where the body is still to be judged.

    `plain`: the length of a body that ends there and leaves the connection open, −1 for every
    other answer. `head_length`: of the JSON before binary tensors, None without that header.
    """

    status: int
    outcome: str
    decision: str
    length: int | None
    is_chunked: bool
    keeps_alive: bool
    head_length: int | None
    plain: int


def read_head(head: bytes) -> Head:
    """The meaning of a head, given without its empty line; `BadHead` if there is none."""
    said = read_reply_head(head)
    if said.status == 101:
        raise BadHead("the server switched protocols")
    outcome = RIGHT
    if not 200 <= said.status < 300:
        code = said.header(b"servegate-error").decode("latin-1")
        outcome = f"http_{said.status}" + (f":{code}" if code else "")
    json_length = said.header(b"inference-header-content-length")
    if json_length and not json_length.isdigit():
        raise BadHead("the length of the response's JSON is not a number")
    is_plain = said.status >= 200 and said.keeps_alive and said.length is not None
    return Head(
        status=said.status,
        outcome=outcome,
        decision=said.header(b"servegate-version").decode("latin-1"),
        length=said.length,
        is_chunked=said.is_chunked,
        keeps_alive=said.keeps_alive,
        head_length=int(json_length) if json_length else None,
        plain=said.length if is_plain and said.length is not None else -1,
    )


class HttpHeads:
    """Reads heads, and remembers the last thousand in `known`, without the gateway's ids."""

    def __init__(self) -> None:
        self.known: dict[bytes, Head] = {}
        self._versions: dict[bytes, str] = {}

    def read(self, head: bytes) -> Head:
        """The meaning of a head, given without its empty line; `BadHead` if there is none."""
        start = head.find(_ID_LINE)
        if start >= 0:
            end = head.find(b"\r\n", start + 2)
            head = head[:start] + head[end:] if end >= 0 else head[:start]
        known = self.known.get(head)
        if known is None:
            known = read_head(head)
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            if len(head) <= _LONGEST_REMEMBERED:
                self.known[head] = known
        return known

    def version(self, data: bytes, start: int) -> str:
        """The version that the JSON of Triton's own answer names, from `start` on; or empty."""
        place = data.find(_VERSION, start, start + _VERSION_WITHIN)
        if place < 0:
            return ""
        place += len(_VERSION)
        end = data.find(b'"', place, place + _LONGEST_VERSION)
        written = data[place:end] if end >= 0 else b""
        known = self._versions.get(written)
        if known is None:
            if len(self._versions) >= _REMEMBERED:
                self._versions.clear()
            known = self._versions[written] = written.decode("latin-1")
        return known


class HttpResponse:
    """One answer that comes in pieces, after interim ones, in chunks, or with the connection's end.

    `head` is None until it has come. A whole answer with something behind it is an answer, but its
    connection cannot be used again.
    """

    __slots__ = ("_came", "_chunks", "_heads", "_interim", "_left", "_parts", "head", "is_reusable")

    def __init__(self, heads: HttpHeads) -> None:
        self._heads = heads
        self._came = b""  # of the head
        self._interim = 0
        self._parts: list[bytes] = []
        self._left = 0  # bytes of the body that are owed
        self._chunks: _Chunks | None = None
        self.head: Head | None = None
        self.is_reusable = True

    @property
    def body(self) -> bytes:
        """What has come of it."""
        return b"".join(self._parts)

    def take(self, data: bytes) -> bool:
        """Take what has come; whether the answer is whole now. `BadHead`: it is malformed."""
        head = self.head
        if head is None:
            return self._take_head(data)
        if self._chunks is not None:
            return self._take_chunks(self._chunks, data)
        if head.length is None:
            self._parts.append(data)
            return False
        if len(data) > self._left:
            data = data[: self._left]
            self.is_reusable = False
        self._left -= len(data)
        self._parts.append(data)
        return self._left == 0

    def ends_with_connection(self) -> bool:
        """Whether the end of the connection makes it whole."""
        head = self.head
        return head is not None and head.length is None and not head.is_chunked

    def _take_head(self, data: bytes) -> bool:
        data = self._came + data
        end = data.find(HEAD_END)
        if end < 0:
            self._came = data
            if len(data) > LONGEST:
                raise BadHead("the head of the response is too long")
            return False
        head = self._heads.read(data[:end])
        rest = data[end + len(HEAD_END) :]
        if head.status < 200:
            self._came = b""
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                raise BadHead("too many interim responses")
            return self._take_head(rest) if rest else False
        self.head = head
        self.is_reusable = head.keeps_alive
        if head.is_chunked:
            self._chunks = _Chunks(self._parts)
            return self._take_chunks(self._chunks, data)
        self._left = head.length or 0
        return self.take(rest)

    def _take_chunks(self, chunks: _Chunks, data: bytes) -> bool:
        try:
            chunks.parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not chunks.is_whole:
                raise BadHead("the chunks of the response are malformed") from error
            chunks.has_more = True
        if chunks.has_more:
            self.is_reusable = False
        return chunks.is_whole


class _Chunks:
    """Lets llhttp read chunks. `has_more`: something stands behind the answer."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts
        self.is_whole = self.has_more = False
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        """Called by llhttp."""
        self.has_more = self.is_whole

    def on_body(self, data: bytes) -> None:
        """Called by llhttp."""
        if not self.is_whole:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """Called by llhttp."""
        self.is_whole = True
