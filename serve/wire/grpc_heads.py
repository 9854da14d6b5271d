"""Heads of gRPC over HTTP/2: what a request says, what an answer says, and which fields go on.

What a head means is made once for every distinct block and remembered (`hpack_blocks`), so all of
this is values. Fields that nobody reads go on as they were encoded.

| field                                  | request                    | answer              |
|----------------------------------------|----------------------------|---------------------|
| :method :path content-type             | read                       |                     |
| te                                     | checked, written again     |                     |
| grpc-timeout grpc-encoding             | read, written again        | goes on             |
| content-length                         | read, stays behind         | goes on             |
| grpc-accept-encoding                   | goes on, where it may      | goes on             |
| authorization                          | read, goes on if not ours  | goes on             |
| x-request-id traceparent               | kept, go on                | go on               |
| user-agent host, other grpc-*          | stay behind                | go on               |
| servegate-* x-forwarded-* and the like | stay behind                | go on               |
| :status grpc-status grpc-message       |                            | read, go on         |
| connection and its kind, capitals      | malformed                  | stay behind         |
| everything else                        | goes on                    | goes on             |
"""

import re
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, unquote_to_bytes

from serve.core.calls import Reply
from serve.wire.hpack_blocks import Field, Fields, Memo, literal

PASS, READ, PSEUDO, DROP, BAD, KEPT = range(6)
CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_READ_OF_ANSWER = frozenset({b":status", b"grpc-status", b"grpc-message"})
NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

POST_OVER_HTTP = b"\x83\x86"  # the constants `:method: POST` and `:scheme: http`
TE = literal(b"te", b"trailers")
CONTENT_TYPE = literal(b"content-type", b"application/grpc")
OK_HEAD = b"\x88" + CONTENT_TYPE
OK_TRAILERS = literal(b"grpc-status", b"0")


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What the head or the trailers of an answer say. `block` is what goes to the client.

    `status` is the gRPC status, UNKNOWN where there is none; `http` is the HTTP status, -1 in
    trailers; `said` is the field of the block that holds the message.
    """

    block: bytes
    http: int
    status: int
    message: str
    said: bytes

    def with_message(self, message: str) -> bytes:
        """The block with another message in the place of its own."""
        return self.block.replace(self.said, message_field(message), 1)


def answer_memo() -> Memo[AnswerHead]:
    """Reads answers."""
    fields = Fields(_kind_in_answer)

    def make(read: list[Field]) -> AnswerHead:
        return _answer(fields, read)

    return Memo(fields, make)


def error_block(reply: Reply, *, with_head: bool) -> bytes:
    """A status as trailers; `with_head` makes them a whole answer (Trailers-Only)."""
    block = [OK_HEAD if with_head else b"", literal(b"grpc-status", b"%d" % reply.status)]
    if reply.message:
        block.append(message_field(reply.message))
    block += [literal(name, value) for name, value in reply.headers]
    return b"".join(block)


def status_block(status: int) -> bytes:
    """An answer of HTTP itself, without a body."""
    return literal(b":status", b"%d" % status)


def timeout_field(seconds: float) -> bytes:
    """`grpc-timeout`, rounded to milliseconds, at least one."""
    return literal(b"grpc-timeout", b"%dm" % min(max(1, round(seconds * 1000)), 99_999_999))


def message_field(message: str) -> bytes:
    """`grpc-message`."""
    return literal(b"grpc-message", percent_encoded(message))


def percent_encoded(message: str) -> bytes:
    """A status message as gRPC writes it: all but printable ASCII, and `%`, percent-encoded."""
    return quote_from_bytes(message.encode(), safe=_PRINTABLE).encode()


def percent_decoded(message: bytes) -> str:
    """A status message as people read it."""
    return unquote_to_bytes(message).decode("utf-8", "replace")


# --- answers -------------------------------------------------------------------------------------


def _kind_in_answer(name: bytes) -> int:
    if name in _READ_OF_ANSWER:
        return READ
    return DROP if name in CONNECTION or not NAME.fullmatch(name) else PASS


def _answer(fields: Fields, read: list[Field]) -> AnswerHead:
    known: dict[bytes, bytes] = {}
    block: list[bytes] = []
    said = b""
    for one in read:
        name, value = one
        if name.kind == READ:
            known[name.name] = fields.value(one)
            if name.name == b"grpc-message":
                said = name.literal + value
        if name.kind != DROP:
            block += (name.literal, value)
    return AnswerHead(
        block=b"".join(block),
        http=_number(known[b":status"]) if b":status" in known else -1,
        status=_number(known.get(b"grpc-status", b"")),
        message=percent_decoded(known.get(b"grpc-message", b"")),
        said=said,
    )


def _number(value: bytes) -> int:
    """A status; one that is no number is UNKNOWN (2), as gRPC says."""
    return int(value) if value.isdigit() and len(value) <= 3 else 2
