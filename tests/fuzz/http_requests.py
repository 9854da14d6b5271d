"""Requests: bytes of a client, and what becomes of them at the replicas.

For every input, however it is cut (also request by request, for heads that are known are not parsed
again): nothing raises, nothing hangs, nothing is left behind; replicas
see well-formed HTTP alone, and of it only what a strict parser finds in the input, in its order;
what the client was refused has reached no replica, what it was answered has reached one, once.
"""

import re

from fuzz.cutting import ways
from fuzz.http_scene import Executed, HttpScene, Outcome
from fuzz.strict_http import Answer, Request, requests

_DROPPED = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade host content-length content-type accept-encoding expect".split()
)


def play(data: bytes) -> None:
    strict = requests(data)
    apart = [piece for piece in re.split(rb"(?=POST |GET )", data) if piece]
    for way, pieces in [*ways(data), ("apart", apart)]:
        outcome = HttpScene(is_narrow=way == "cut").play(pieces, is_patient=way == "apart")
        _check_executed(outcome, strict)
        _check_answers(outcome, strict)


def _check_executed(outcome: Outcome, strict: list[Request]) -> None:
    """Replicas execute a subsequence of what the client sent beyond doubt."""
    sent = iter(strict)
    for one in outcome.executed:
        assert any(_is_same(asked, one) for asked in sent), f"the client never sent {one}"


def _is_same(asked: Request, executed: Executed) -> bool:
    """Whether this is the request that was executed: its body whole, no header new or missing."""
    has_its_body = asked.is_whole and asked.body == executed.body
    if asked.method == "GET":  # whose body nobody waits for
        has_its_body = not executed.body
    given = {(name, value) for name, value in asked.headers}
    passed = {(name.lower(), value) for name, value in executed.headers}
    invented = {name for name, _ in passed - given}
    framing = {b"host", b"content-length", b"transfer-encoding"}
    missing = {name for name, _ in given - passed} - _may_be_dropped(asked)
    is_same = not missing and invented <= framing
    return asked.method == executed.method and has_its_body and is_same


def _may_be_dropped(asked: Request) -> set[bytes]:
    """What belongs to one hop, and what the gateway may write anew, or leave out."""
    named = {
        word.strip().lower()
        for name, value in asked.headers
        if name == b"connection"
        for word in value.split(b",")
    }
    return named | _DROPPED


def _check_answers(outcome: Outcome, strict: list[Request]) -> None:
    answers = [one for one in outcome.answers if one.status]
    has_more = not strict or strict[-1].is_whole
    assert len(answers) <= len(strict) + has_more, answers
    broken = [one for one in answers if not one.is_complete]
    assert not broken or broken == answers[-1:], broken
    if len(answers) > len(strict):
        assert answers[-1].error or not answers[-1].is_complete, answers[-1]
    assert not [one for one in answers if one.error == "internal" or one.status == 500], answers
    passed_on = [one for one in answers if _was_executed(one)]
    lost = len(outcome.executed) - len(passed_on)  # an answer that is broken off may not arrive
    assert 0 <= lost <= outcome.was_aborted, (answers, outcome.executed)


def _was_executed(answer: Answer) -> bool:
    """Whether the answer says that a replica has executed the call, or may have."""
    return answer.error == "outcome_unknown" or b"x-executed" in answer.headers
