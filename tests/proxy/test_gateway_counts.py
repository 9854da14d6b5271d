"""What the gateway counts: calls in flight, which end at 0 whatever happens, and metrics."""

import asyncio

import pytest
from builders import DataPlane, Outcome, call, snapshot, target, until, view

from serve.core.calls import Call, Reply, Verb
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown, ServegateError

PAIR = snapshot(view(target(1, "a", "b"), split="1=1", labels={"stable": 1}), generation=7)
LABELS = {"model": "m", "version": "1", "route": "split", "protocol": "http"}


def send(plane: DataPlane, asked: Call | None = None) -> None:
    """One call; an error of ours is part of the scene."""
    try:
        asyncio.run(plane.gateway.handle(asked or call()))
    except ServegateError:
        pass


OUTCOMES = {
    "good": Reply(200, b""),
    "an error of Triton": Reply(500, b""),
    "busy": Reply(503, b""),
    "not sent": NotSent("refused"),
    "outcome unknown": OutcomeUnknown("broke"),
    "late": DeadlineExceeded(),
}


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
@pytest.mark.parametrize("verb", [Verb.INFER, Verb.METADATA, Verb.SERVER_METADATA])
def test_nothing_is_in_flight_after_any_outcome(outcome: Outcome, verb: Verb) -> None:
    plane = DataPlane(PAIR, dict.fromkeys("ab", outcome))
    send(plane, call(verb))
    assert repr(plane.loads) == "<Loads replicas={} models={}>"
    assert plane.http.tried


def test_nothing_is_in_flight_after_an_error_that_nobody_expected() -> None:
    plane = DataPlane(PAIR, {"a": RuntimeError("a bug")})
    with pytest.raises(RuntimeError):
        asyncio.run(plane.gateway.handle(call()))
    assert repr(plane.loads) == "<Loads replicas={} models={}>"


def test_nothing_is_in_flight_after_a_call_was_cancelled() -> None:
    async def scenario() -> tuple[str, str]:
        plane = DataPlane(PAIR, {"a": asyncio.Event()})
        task = asyncio.create_task(plane.gateway.handle(call()))
        await until(plane.http.entered.is_set)
        during = repr(plane.loads)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return during, repr(plane.loads)

    assert asyncio.run(scenario()) == (
        "<Loads replicas={'a': 1} models={'m': 1}>",
        "<Loads replicas={} models={}>",
    )


def test_an_answer_is_counted_with_model_version_route_protocol_verb_and_code() -> None:
    plane = DataPlane(PAIR)
    send(plane)
    assert plane.count("servegate_calls_total", **LABELS, verb="infer", code="200") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 1
    assert plane.count("servegate_errors_total", **LABELS, error="200") == 0


def test_an_answer_that_is_an_error_counts_as_both() -> None:
    plane = DataPlane(PAIR, {"a": Reply(5, b"", (), "not found")})
    send(plane, call(protocol="grpc", selector="stable"))
    labels = LABELS | {"route": "label:stable", "protocol": "grpc"}
    assert plane.count("servegate_calls_total", **labels, verb="infer", code="NOT_FOUND") == 1
    assert plane.count("servegate_errors_total", **labels, error="NOT_FOUND") == 1


def test_an_error_of_ours_is_counted_by_its_code() -> None:
    plane = DataPlane(PAIR, {"a": OutcomeUnknown("broke")})
    send(plane)
    assert plane.count("servegate_errors_total", **LABELS, error="outcome_unknown") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 1


@pytest.mark.parametrize(
    ("asked", "error"),
    [(call(model="invented"), "unknown_model"), (call(selector="invented"), "unknown_label")],
)
def test_names_that_callers_invent_do_not_become_labels(asked: Call, error: str) -> None:
    plane = DataPlane(PAIR)
    send(plane, asked)
    labels = {"model": "", "version": "", "route": "", "protocol": "http"}
    assert plane.count("servegate_errors_total", **labels, error=error) == 1
    assert b"invented" not in plane.meters.text()


def test_questions_are_counted_but_not_timed() -> None:
    plane = DataPlane(PAIR)
    send(plane, call(Verb.METADATA))
    assert plane.count("servegate_calls_total", **LABELS, verb="metadata", code="200") == 1
    assert plane.count("servegate_call_seconds_count", **LABELS) == 0


def test_a_question_to_the_server_itself_is_counted_too() -> None:
    plane = DataPlane(PAIR)
    send(plane, call(Verb.SERVER_METADATA, model=""))
    labels = {"model": "", "version": "", "route": "", "protocol": "http"}
    verb = "server_metadata"
    assert plane.count("servegate_calls_total", **labels, verb=verb, code="200") == 1


def test_the_time_of_a_call_is_its_whole_time() -> None:
    async def scenario() -> DataPlane:
        held = asyncio.Event()
        plane = DataPlane(PAIR, {"a": held})
        task = asyncio.create_task(plane.gateway.handle(call()))
        await until(plane.http.entered.is_set)
        plane.clock.now += 3
        held.set()
        await task
        return plane

    assert asyncio.run(scenario()).count("servegate_call_seconds_sum", **LABELS) == 3


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (NotSent("refused"), "not sent"),
        (Reply(503, b'{"error":"Exceeds maximum queue size"}'), "refused"),
        (Reply(404, b'{"error":"Request for unknown model: \'m\'"}'), "version absent"),
    ],
)
def test_a_retry_is_counted_with_its_reason(outcome: Outcome, reason: str) -> None:
    plane = DataPlane(PAIR, {"a": outcome})
    send(plane)
    assert plane.count("servegate_retries_total", model="m", reason=reason) == 1


def test_an_attempt_that_had_no_successor_is_no_retry() -> None:
    plane = DataPlane(snapshot(view(target(1, "a"))), {"a": NotSent("refused")})
    send(plane)
    assert plane.count("servegate_retries_total", model="m", reason="not sent") == 0
