"""A raw HTTP client on a socket: what is sent is sent as it is, what comes is told as it came."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

PATIENCE = 30.0  # seconds; a bound for what takes milliseconds


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `body` is without the chunks' lengths, `chunks` is None when it had none.

    `is_whole` is False when the connection closed before the answer was complete.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    chunks: tuple[bytes, ...] | None = None
    is_whole: bool = True

    def header(self, name: str) -> str | None:
        """The value of a header that may not come twice."""
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) <= 1, found
        return found[0] if found else None


def ask(address: str, *parts: bytes, count: int = 1) -> list[Answer]:
    """Send bytes on a connection of its own, and read so many answers (fewer if it closes).

    Interim answers are answers. Of several parts each waits for the answer to the one before.
    """
    host, _, port = address.rpartition(":")
    answers: list[Answer] = []
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as peer:
        waiting = iter(parts)
        peer.sendall(next(waiting))
        with peer.makefile("rb") as stream:
            for answer in _answers(stream):
                answers.append(answer)
                if len(answers) == count:
                    break
                peer.sendall(next(waiting, b""))
    return answers


def _answers(stream: BinaryIO) -> Iterator[Answer]:
    while line := stream.readline():
        _, status, *_ = line.split(b" ", 2)
        headers = []
        while (field := stream.readline()) not in (b"\r\n", b""):
            name, _, value = field.decode("latin-1").rstrip("\r\n").partition(": ")
            headers.append((name, value))
        yield _with_body(stream, Answer(int(status), tuple(headers), b""))


def _with_body(stream: BinaryIO, head: Answer) -> Answer:
    if head.status < 200 or head.status in (204, 304):
        return head
    length = head.header("content-length")
    if head.header("transfer-encoding") == "chunked":
        chunks, is_whole = _chunks(stream)
        return Answer(head.status, head.headers, b"".join(chunks), tuple(chunks), is_whole)
    if length is None:
        return Answer(head.status, head.headers, stream.read())
    body = stream.read(int(length))
    return Answer(head.status, head.headers, body, None, len(body) == int(length))


def _chunks(stream: BinaryIO) -> tuple[list[bytes], bool]:
    chunks = []
    while line := stream.readline():
        size = int(line, 16)
        data = stream.read(size + 2)[:size]
        if not size:
            return chunks, True
        chunks.append(data)
    return chunks, False
