"""What the gateway counts: calls in flight, which end at 0 whatever happens, and metrics."""

from collections.abc import Callable

import pytest
from builders import DataPlane, call, snapshot, target, view

from serve.core.calls import Reply, Verb
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.proxy.attempts import Attempt

PAIR = snapshot(view(target(1, "a", "b"), split="1=1", labels={"stable": 1}), generation=7)
LABELS = {"model": "m", "version": "1", "route": "split", "protocol": "http"}
NAMELESS = {"model": "", "version": "", "route": "", "protocol": "http"}
NOTHING = "<Loads replicas={} models={}>"
UNREACHABLE = NotSent("refused")

OUTCOMES = {
    "good": Reply(200, b""),
    "an error of Triton": Reply(500, b""),
    "busy": Reply(503, b'{"error":"Exceeds maximum queue size"}'),
    "not sent": UNREACHABLE,
    "outcome unknown": OutcomeUnknown("broke"),
    "late": DeadlineExceeded(),
}


def test_nothing_is_in_flight_after_any_outcome() -> None:
    for verb in (Verb.INFER, Verb.METADATA, Verb.SERVER_METADATA):
        for outcome in OUTCOMES.values():
            plane = DataPlane(PAIR)
            walk = plane.walk(outcome, outcome, asked=call(verb))
            assert walk.tried, (outcome, verb)
            assert repr(plane.loads) == NOTHING, (outcome, verb)


ENDINGS: dict[str, Callable[[Attempt], None]] = {
    "answered": lambda attempt: attempt.answered(200, good=True),
    "failed": lambda attempt: attempt.failed(OutcomeUnknown("broke")),
    "left": lambda attempt: attempt.left(),
    "passed on": lambda attempt: attempt.passed_on(),
}


def test_a_call_is_in_flight_from_its_beginning_to_its_end() -> None:
    for end in ENDINGS.values():
        plane = DataPlane(PAIR)
        attempt = plane.begin()
        assert repr(plane.loads) == "<Loads replicas={'b': 1} models={'m': 1}>", end
        end(attempt)
        assert attempt.is_ended, end
        assert repr(plane.loads) == NOTHING, end


def test_an_attempt_that_goes_elsewhere_is_in_flight_there_and_only_there() -> None:
    plane = DataPlane(PAIR)
    plane.begin().not_sent(UNREACHABLE)
    assert repr(plane.loads) == "<Loads replicas={'a': 1} models={'m': 1}>"


def test_a_call_that_never_began_is_not_in_flight() -> None:
    for asked in (call(deadline=0.0), call(selector="9"), call(model="x")):
        plane = DataPlane(PAIR)
        assert plane.walk(asked=asked).tried == [], asked
        assert repr(plane.loads) == NOTHING, asked


def test_each_call_is_counted_once_by_its_answer_or_its_error_and_timed_unless_it_asks() -> None:
    labelled = LABELS | {"route": "label:stable", "protocol": "grpc"}
    not_found = Reply(5, b"", (), "not found")
    metadata, server = call(Verb.METADATA), call(Verb.SERVER_METADATA, model="")
    for asked, outcomes, labels, answer, error, timed in (
        (call(), (), LABELS, ("infer", "200"), None, 1),
        (
            call(protocol="grpc", selector="stable"),
            (not_found,),
            labelled,
            ("infer", "NOT_FOUND"),
            "NOT_FOUND",
            1,
        ),
        (call(), (OutcomeUnknown("broke"),), LABELS, None, "outcome_unknown", 1),
        (call(), (UNREACHABLE, UNREACHABLE), LABELS, None, "no_replica", 1),
        (call(deadline=0.0), (), LABELS, None, "deadline_exceeded", 1),
        (metadata, (), LABELS, ("metadata", "200"), None, 0),
        (server, (), NAMELESS, ("server_metadata", "200"), None, 0),
    ):
        plane = DataPlane(PAIR)
        plane.walk(*outcomes, asked=asked)
        text = plane.meters.text()
        if answer:
            verb, code = answer
            assert plane.count("servegate_calls_total", **labels, verb=verb, code=code) == 1, asked
        if error:
            assert plane.count("servegate_errors_total", **labels, error=error) == 1, asked
        assert text.count(b"servegate_calls_total{") == bool(answer), asked
        assert text.count(b"servegate_errors_total{") == bool(error), asked
        assert plane.count("servegate_call_seconds_count", **labels) == timed, asked


def test_a_caller_who_goes_away_is_counted_as_such() -> None:
    plane = DataPlane(PAIR)
    plane.begin().left()
    assert plane.count("servegate_errors_total", **LABELS, error="client_left") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 1
    assert b"servegate_calls_total{" not in plane.meters.text()


def test_a_message_that_was_passed_on_is_counted_as_a_message_alone() -> None:
    plane = DataPlane(PAIR)
    plane.begin(call(Verb.STREAM, protocol="grpc")).passed_on()
    labels = LABELS | {"protocol": "grpc"}
    assert plane.count("servegate_stream_messages_total", **labels) == 1
    assert plane.count("servegate_call_seconds_count", **labels) == 0
    text = plane.meters.text()
    assert b"servegate_calls_total{" not in text and b"servegate_errors_total{" not in text


def test_names_that_callers_invent_do_not_become_labels() -> None:
    for asked, error in (
        (call(model="invented"), "unknown_model"),
        (call(selector="invented"), "unknown_label"),
    ):
        plane = DataPlane(PAIR)
        plane.walk(asked=asked)
        assert plane.count("servegate_errors_total", **NAMELESS, error=error) == 1, asked
        assert b"invented" not in plane.meters.text(), asked


def test_a_call_that_is_refused_at_the_limit_is_counted_with_its_version() -> None:
    plane = DataPlane(PAIR, limit=0)
    plane.walk()
    assert plane.count("servegate_errors_total", **LABELS, error="overloaded") == 1


def test_the_time_of_a_call_is_its_whole_time_with_all_its_attempts() -> None:
    for end in [name for name in ENDINGS if name != "passed on"]:
        plane = DataPlane(PAIR)
        attempt = plane.begin()
        plane.clock.now += 1
        attempt.not_sent(UNREACHABLE)
        plane.clock.now += 2
        ENDINGS[end](attempt)
        assert plane.count("servegate_call_seconds_sum", **LABELS) == 3, end


def test_a_retry_is_counted_with_its_reason() -> None:
    for outcome, reason in (
        (UNREACHABLE, "not sent"),
        (Reply(503, b'{"error":"Exceeds maximum queue size"}'), "refused"),
        (
            Reply(404, b'{"error":"Request for unknown model: \'m\' is not found"}'),
            "version absent",
        ),
    ):
        plane = DataPlane(PAIR)
        plane.walk(outcome)
        assert plane.count("servegate_retries_total", model="m", reason=reason) == 1, outcome


def test_an_attempt_that_had_no_successor_is_no_retry() -> None:
    for outcome in (UNREACHABLE, OUTCOMES["busy"]):
        plane = DataPlane(snapshot(view(target(1, "a"))))
        plane.walk(outcome)
        assert b"servegate_retries_total{" not in plane.meters.text(), outcome


def test_an_attempt_whose_successor_came_too_late_is_no_retry() -> None:
    plane = DataPlane(PAIR)
    unsent, busy = (plane.begin(call(deadline=plane.clock.now + 1)) for _ in range(2))
    plane.clock.now += 1
    with pytest.raises(DeadlineExceeded):
        unsent.not_sent(UNREACHABLE)
    with pytest.raises(DeadlineExceeded):
        busy.refused(Reply(503, b'{"error":"Exceeds maximum queue size"}'))
    assert b"servegate_retries_total{" not in plane.meters.text()
