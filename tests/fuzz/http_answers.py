"""Answers: bytes of a replica, and what a client makes of what the gateway makes of them.

A broken answer may become an error or a broken-off connection, never an answer that looks complete
and is not: whatever a client takes for complete is byte for byte what h11 reads in the replica's
own bytes.
"""

import h11
from fuzz.cutting import choice, ways
from fuzz.http_scene import HttpScene
from fuzz.strict_http import Answer, answer

_CALLS = (
    b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/r/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/m/infer HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    b"Content-Length: 2\r\n\r\n{}",
)
_RENAMED = 1


def play(data: bytes) -> None:
    whole = _read(data)
    for way, pieces in ways(data):
        for call in {choice(data, len(_CALLS)), _RENAMED}:
            _play_through(pieces, whole, call, way == "cut")


def _read(data: bytes) -> Answer | None:
    """The first final answer in the bytes, when it is complete."""
    try:
        found, _ = answer(data, "POST", is_over=True)
    except (h11.RemoteProtocolError, AssertionError):
        return None
    return found if found.is_complete else None


def _play_through(pieces: list[bytes], whole: Answer | None, call: int, is_narrow: bool) -> None:
    outcome = HttpScene(is_narrow=is_narrow, script=pieces).play([_CALLS[call]])
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
