"""What the gateway counts: calls in flight, which end at 0 whatever happens, and metrics."""

from collections.abc import Callable

import pytest
from builders import DataPlane, Outcome, call, snapshot, target, view

from serve.core.calls import Call, Reply, Verb
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


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
@pytest.mark.parametrize("verb", [Verb.INFER, Verb.METADATA, Verb.SERVER_METADATA])
def test_nothing_is_in_flight_after_any_outcome(outcome: Outcome, verb: Verb) -> None:
    plane = DataPlane(PAIR)
    walk = plane.walk(outcome, outcome, asked=call(verb))
    assert walk.tried
    assert repr(plane.loads) == NOTHING


ENDINGS: dict[str, Callable[[Attempt], None]] = {
    "answered": lambda attempt: attempt.answered(200, good=True),
    "failed": lambda attempt: attempt.failed(OutcomeUnknown("broke")),
    "left": lambda attempt: attempt.left(),
    "passed on": lambda attempt: attempt.passed_on(),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_a_call_is_in_flight_from_its_beginning_to_its_end(end: Callable[[Attempt], None]) -> None:
    plane = DataPlane(PAIR)
    attempt = plane.begin()
    assert repr(plane.loads) == "<Loads replicas={'b': 1} models={'m': 1}>"
    end(attempt)
    assert attempt.is_ended
    assert repr(plane.loads) == NOTHING


def test_an_attempt_that_goes_elsewhere_is_in_flight_there_and_only_there() -> None:
    plane = DataPlane(PAIR)
    plane.begin().not_sent(UNREACHABLE)
    assert repr(plane.loads) == "<Loads replicas={'a': 1} models={'m': 1}>"


@pytest.mark.parametrize("asked", [call(deadline=0.0), call(selector="9"), call(model="x")])
def test_a_call_that_never_began_is_not_in_flight(asked: Call) -> None:
    plane = DataPlane(PAIR)
    assert plane.walk(asked=asked).tried == []
    assert repr(plane.loads) == NOTHING


def test_an_answer_is_counted_with_model_version_route_protocol_verb_and_code() -> None:
    plane = DataPlane(PAIR)
    plane.walk()
    assert plane.count("servegate_calls_total", **LABELS, verb="infer", code="200") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 1
    assert plane.count("servegate_errors_total", **LABELS, error="200") == 0


def test_an_answer_that_is_an_error_counts_as_both() -> None:
    plane = DataPlane(PAIR)
    asked = call(protocol="grpc", selector="stable")
    plane.walk(Reply(5, b"", (), "not found"), asked=asked)
    labels = LABELS | {"route": "label:stable", "protocol": "grpc"}
    assert plane.count("servegate_calls_total", **labels, verb="infer", code="NOT_FOUND") == 1
    assert plane.count("servegate_errors_total", **labels, error="NOT_FOUND") == 1


def test_an_error_of_ours_is_counted_by_its_code() -> None:
    plane = DataPlane(PAIR)
    plane.walk(OutcomeUnknown("broke"))
    assert plane.count("servegate_errors_total", **LABELS, error="outcome_unknown") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 1


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


@pytest.mark.parametrize(
    ("asked", "error"),
    [(call(model="invented"), "unknown_model"), (call(selector="invented"), "unknown_label")],
)
def test_names_that_callers_invent_do_not_become_labels(asked: Call, error: str) -> None:
    plane = DataPlane(PAIR)
    plane.walk(asked=asked)
    assert plane.count("servegate_errors_total", **NAMELESS, error=error) == 1
    assert b"invented" not in plane.meters.text()


def test_a_call_that_is_refused_at_the_limit_is_counted_with_its_version() -> None:
    plane = DataPlane(PAIR, limit=0)
    plane.walk()
    assert plane.count("servegate_errors_total", **LABELS, error="overloaded") == 1


def test_a_call_that_comes_too_late_is_counted_once() -> None:
    plane = DataPlane(PAIR)
    plane.walk(asked=call(deadline=0.0))
    assert plane.count("servegate_errors_total", **LABELS, error="deadline_exceeded") == 1


def test_a_call_that_no_replica_took_is_counted_once() -> None:
    plane = DataPlane(PAIR)
    plane.walk(UNREACHABLE, UNREACHABLE)
    assert plane.count("servegate_errors_total", **LABELS, error="no_replica") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 1


def test_questions_are_counted_but_not_timed() -> None:
    plane = DataPlane(PAIR)
    plane.walk(asked=call(Verb.METADATA))
    assert plane.count("servegate_calls_total", **LABELS, verb="metadata", code="200") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 0


def test_a_question_to_the_server_itself_is_counted_too() -> None:
    plane = DataPlane(PAIR)
    plane.walk(asked=call(Verb.SERVER_METADATA, model=""))
    verb = "server_metadata"
    assert plane.count("servegate_calls_total", **NAMELESS, verb=verb, code="200") == 1


@pytest.mark.parametrize("end", [name for name in ENDINGS if name != "passed on"])
def test_the_time_of_a_call_is_its_whole_time_with_all_its_attempts(end: str) -> None:
    plane = DataPlane(PAIR)
    attempt = plane.begin()
    plane.clock.now += 1
    attempt.not_sent(UNREACHABLE)
    plane.clock.now += 2
    ENDINGS[end](attempt)
    assert plane.count("servegate_call_seconds_sum", **LABELS) == 3


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (UNREACHABLE, "not sent"),
        (Reply(503, b'{"error":"Exceeds maximum queue size"}'), "refused"),
        (
            Reply(404, b'{"error":"Request for unknown model: \'m\' is not found"}'),
            "version absent",
        ),
    ],
)
def test_a_retry_is_counted_with_its_reason(outcome: Outcome, reason: str) -> None:
    plane = DataPlane(PAIR)
    plane.walk(outcome)
    assert plane.count("servegate_retries_total", model="m", reason=reason) == 1


@pytest.mark.parametrize("outcome", [UNREACHABLE, OUTCOMES["busy"]])
def test_an_attempt_that_had_no_successor_is_no_retry(outcome: Outcome) -> None:
    plane = DataPlane(snapshot(view(target(1, "a"))))
    plane.walk(outcome)
    assert b"servegate_retries_total{" not in plane.meters.text()


def test_an_attempt_whose_successor_came_too_late_is_no_retry() -> None:
    plane = DataPlane(PAIR)
    unsent, busy = (plane.begin(call(deadline=plane.clock.now + 1)) for _ in range(2))
    plane.clock.now += 1
    with pytest.raises(DeadlineExceeded):
        unsent.not_sent(UNREACHABLE)
    with pytest.raises(DeadlineExceeded):
        busy.refused(Reply(503, b'{"error":"Exceeds maximum queue size"}'))
    assert b"servegate_retries_total{" not in plane.meters.text()
