"""Requests and answers of HTTP/1.1, as they are written."""

from __future__ import annotations

import random

INFER = "/v2/models/m/infer"
GOOD = b'{"model_name":"m","model_version":"1","outputs":[]}'
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n".encode()  # of a request, to be continued
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = HEAD + b"Content-Length: 5\r\n\r\nwrong"
MIB = 1 << 20
_RANDOM = random.Random(7).randbytes(4 * MIB)


def request(
    body: bytes = b"{}",
    *headers: str,
    path: str = INFER,
    method: str = "POST",
    version: str = "1.1",
    length: int | None = None,
) -> bytes:
    """A request with a length; `length` may lie."""
    size = len(body) if length is None else length
    lines = [f"{method} {path} HTTP/{version}", "Host: x", *headers, f"Content-Length: {size}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """A question."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def chunked(*chunks: bytes, headers: tuple[str, ...] = (), path: str = INFER) -> bytes:
    """A request in chunks."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", *headers, "Transfer-Encoding: chunked", "", ""]
    return "\r\n".join(lines).encode() + b"".join(map(chunk, chunks)) + b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reply(body: bytes = GOOD, *headers: str, status: int = 200, length: int | None = None) -> bytes:
    """An answer of a replica."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {size}", "", ""]).encode() + body


def content(size: int) -> bytes:
    """A body in which no part is like another one."""
    return (_RANDOM * -(-size // len(_RANDOM)))[:size]
