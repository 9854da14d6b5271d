"""The deadline of a route, and calls that may be executed twice."""

import math

import pytest
from builders import DataPlane, call, snapshot, target, view

from serve.core import faults
from serve.core.calls import Reply, Verb
from serve.core.errors import DeadlineExceeded, NotLoaded, OutcomeUnknown
from serve.core.routes import RouteRules
from serve.proxy.attempts import Attempt

BROKEN = OutcomeUnknown("the connection broke")
ABSENT = Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
TWICE = RouteRules(idempotent=True)


def plane(rules: RouteRules, *replicas: str, sequences: bool = False) -> DataPlane:
    held = target(1, *(replicas or ("a", "b", "c")))
    return DataPlane(snapshot(view(held, split="1=1", rules=rules, sequences=sequences)))


def retries(of: DataPlane) -> float:
    return of.count("servegate_retries_total", model="m", reason="outcome unknown")


def refuses(attempt: Attempt, error: OutcomeUnknown = BROKEN) -> bool:
    """Whether the attempt stays where it is, and the call can still be ended with the error."""
    before = attempt.replica
    with pytest.raises(OutcomeUnknown) as raised:
        attempt.broken_off(error)
    return raised.value is error and attempt.replica == before and not attempt.is_ended


def test_the_deadline_of_a_route_holds_for_every_predict_call_of_its_model() -> None:
    one = plane(RouteRules(deadline=2.0))
    now = one.clock.now
    for verb in (Verb.INFER, Verb.GENERATE):
        for selector in ("", "1"):
            for given, expected in ((math.inf, now + 2), (now + 1, now + 1)):
                asked = call(verb, selector=selector, deadline=given)
                one.begin(asked).left()
                assert asked.deadline == expected, (verb, selector)
    for verb in (Verb.GENERATE_STREAM, Verb.STREAM, Verb.METADATA):
        asked = call(verb)
        one.begin(asked).left()
        assert asked.deadline == math.inf, verb


def test_a_call_that_begins_anew_has_no_more_time_than_before() -> None:
    one = plane(RouteRules(deadline=2.0))
    asked = call()
    one.begin(asked).left()
    until = asked.deadline
    one.clock.now += 1
    one.begin(asked).left()
    assert asked.deadline == until
    one.clock.now += 1
    with pytest.raises(DeadlineExceeded):
        one.begin(asked)


def test_a_call_that_may_be_repeated_goes_to_another_replica_once() -> None:
    one = plane(TWICE)
    attempt = one.begin()
    first = attempt.replica
    attempt.broken_off(BROKEN)
    assert attempt.replica != first
    assert retries(one) == 1
    assert refuses(attempt)  # a request that breaks replicas does not break the third one
    attempt.failed(BROKEN)
    assert one.loads.total == 0


def test_other_calls_are_not_repeated() -> None:
    assert refuses(plane(RouteRules()).begin())
    assert refuses(plane(TWICE, "a").begin())
    assert refuses(plane(TWICE, sequences=True).begin())
    assert refuses(plane(TWICE).begin(call(Verb.STREAM)))
    assert refuses(plane(TWICE).begin(), OutcomeUnknown(faults.WHAT))
    ended = plane(TWICE).begin()
    ended.left()
    with pytest.raises(OutcomeUnknown):
        ended.broken_off(BROKEN)


def test_a_call_that_was_repeated_does_not_wait_and_begin_anew() -> None:
    attempt = plane(TWICE, "a", "b").begin()
    attempt.broken_off(BROKEN)
    with pytest.raises(NotLoaded) as raised:
        attempt.refused(ABSENT)
    assert not raised.value.until, "it would be repeated on the replica that it has broken"


def test_a_call_whose_time_is_over_is_not_repeated() -> None:
    one = plane(RouteRules(idempotent=True, deadline=1.0))
    attempt = one.begin()
    one.clock.now += 1
    with pytest.raises(DeadlineExceeded):
        attempt.broken_off(BROKEN)
    assert attempt.is_ended
