"""Answers: bytes of a replica, and what a client makes of what the gateway makes of them.

A broken answer may become an error or a broken-off connection, never an answer that looks complete
and is not: whatever a client takes for complete is byte for byte what h11 reads in the replica's
own bytes. The bytes are played to a bare connection, too, cut in every way.
"""

import asyncio
from dataclasses import dataclass, field

import h11
from fuzz.cutting import choice, ways
from fuzz.http_scene import HttpScene
from fuzz.strict_http import Answer, answer
from fuzz.wires import Loop, Wire

from serve.triton.http_connection import HttpConnection
from serve.wire.http_head import ReplyHead

_CALLS = (
    b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/r/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/m/infer HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    b"Content-Length: 2\r\n\r\n{}",
)
_RENAMED = 1


def play(data: bytes) -> None:
    """See the module."""
    whole = _read(data)
    for _, pieces in ways(data):
        _play_bare(pieces, whole)
    number = choice(data, len(_CALLS))
    for call in {number, _RENAMED}:
        for is_narrow in (False, True):
            _play_through(data, whole, call, is_narrow)


def _read(data: bytes) -> Answer | None:
    """The first final answer in the bytes, when it is complete."""
    try:
        found, _ = answer(data, "POST", is_over=True)
    except (h11.RemoteProtocolError, AssertionError):
        return None
    return found if found.is_complete else None


@dataclass(slots=True)
class Recorder:
    """A consumer that keeps what it is told."""

    heads: list[ReplyHead] = field(default_factory=list)
    body: bytes = b""
    ends: list[str] = field(default_factory=list)

    def reply_head(self, head: ReplyHead, body: bytes, *, is_whole: bool) -> None:
        assert not self.heads and not self.ends
        self.heads.append(head)
        self.body += body
        if is_whole:
            self.reply_end()

    def reply_body(self, data: bytes) -> None:
        assert self.heads and not self.ends
        self.body += data

    def reply_end(self) -> None:
        assert self.heads
        self.ends.append("")

    def reply_broken(self, why: str) -> None:
        self.ends.append(why)

    def request_paused(self) -> None:
        """Nothing is written here."""

    def request_resumed(self) -> None:
        """Nothing is written here."""


_loop: list[Loop] = []


def _play_bare(pieces: list[bytes], whole: Answer | None) -> None:
    if not _loop:
        _loop.append(Loop())
    loop = _loop[0]
    asyncio.set_event_loop(loop)
    loop.failures.clear()
    recorder, connection = Recorder(), HttpConnection(("192.0.2.1", 1))
    wire = Wire(loop, connection)
    connection.begin(recorder)
    for piece in pieces:
        if wire.may_say:
            wire.say(piece)
    wire.end()
    loop.finish(lambda: False)
    assert len(recorder.ends) == 1, recorder
    assert connection.consumer is None and not connection.is_open
    if recorder.ends == [""]:
        assert whole is not None, f"taken for complete: {recorder}"
        assert (recorder.heads[0].status, recorder.body) == (whole.status, whole.body), whole


def _play_through(data: bytes, whole: Answer | None, call: int, is_narrow: bool) -> None:
    outcome = HttpScene(is_narrow=is_narrow, script=data).play([_CALLS[call]])
    assert len(outcome.answers) <= 1
    may_repeat = whole is not None and whole.status in (404, 503)
    assert 1 <= len(outcome.executed) <= 1 + may_repeat
    if not outcome.answers:
        assert outcome.was_aborted
        return
    one = outcome.answers[0]
    if one.error or not one.is_complete:
        assert one.error in ("", "outcome_unknown"), one
        return
    assert whole is not None, f"looks complete: {one}"
    assert one.status == whole.status
    if call != _RENAMED:
        assert one.body == whole.body, (one.body, whole.body)
    else:
        restored = whole.body.replace(b"r--0a1b", b"r")
        assert one.body.replace(b"r--0a1b", b"r") == restored, (one.body, restored)
