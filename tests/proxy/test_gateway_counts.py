"""What the gateway counts and writes down of calls: those in flight, metrics, the journal."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest
from builders import DataPlane, call, snapshot, target, view
from refusals import refusal

from serve.core.access import ApiKey, Role
from serve.core.calls import Reply, Verb
from serve.core.errors import Asleep, DeadlineExceeded, NotSent, OutcomeUnknown, ServegateError
from serve.proxy.attempts import Attempt
from serve.proxy.journal import EndedCall

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

ENDINGS: dict[str, Callable[[Attempt], None]] = {
    "answered": lambda attempt: attempt.answered(200, good=True),
    "failed": lambda attempt: attempt.failed(OutcomeUnknown("broke")),
    "left": lambda attempt: attempt.left(),
    "passed on": lambda attempt: attempt.passed_on(),
}


def test_nothing_is_in_flight_after_any_outcome() -> None:
    for verb in (Verb.INFER, Verb.METADATA, Verb.SERVER_METADATA):
        for outcome in OUTCOMES.values():
            plane = DataPlane(PAIR)
            walk = plane.walk(outcome, outcome, asked=call(verb))
            assert walk.tried, (outcome, verb)
            assert repr(plane.loads) == NOTHING, (outcome, verb)


def test_a_call_is_in_flight_from_its_beginning_to_its_end_where_its_attempt_is() -> None:
    for end in ENDINGS.values():
        plane = DataPlane(PAIR)
        attempt = plane.begin()
        assert repr(plane.loads) == "<Loads replicas={'b': 1} models={'m': 1}>", end
        attempt.not_sent(UNREACHABLE)
        assert repr(plane.loads) == "<Loads replicas={'a': 1} models={'m': 1}>", end
        end(attempt)
        assert attempt.is_ended, end
        assert repr(plane.loads) == NOTHING, end


def test_calls_are_counted_by_model_those_that_wait_for_their_pool_included() -> None:
    plane = DataPlane(snapshot(view(asleep=True), view(target(model="n"), name="n")))
    other, asked = plane.begin(call(model="n")), call()
    with pytest.raises(Asleep):
        plane.begin(asked)
    plane.gateway.wait(asked, Waits())
    assert plane.gateway.calls == {"m": 1, "n": 1}
    plane.waking.close()
    assert plane.gateway.calls == {"n": 1}
    other.left()
    assert plane.gateway.calls == {}


class Waits:
    """A call that waits until its worker stops."""

    def on_awake(self, attempt: Attempt) -> None:
        raise AssertionError("no pool wakes here")

    def on_asleep(self, error: ServegateError) -> None:
        assert isinstance(error, Asleep)

    def on_fault(self, error: Exception) -> None:
        raise error


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
    absent = Reply(404, b'{"error":"Request for unknown model: \'m\' is not found"}')
    for outcome, reason in (
        (UNREACHABLE, "not sent"),
        (OUTCOMES["busy"], "refused"),
        (absent, "version absent"),
    ):
        plane = DataPlane(PAIR)
        plane.walk(outcome)
        assert plane.count("servegate_retries_total", model="m", reason=reason) == 1, outcome


def test_an_attempt_that_had_no_successor_or_one_too_late_is_no_retry() -> None:
    alone = DataPlane(snapshot(view(target(1, "a"))))
    for outcome in (UNREACHABLE, OUTCOMES["busy"]):
        alone.walk(outcome)
    late = DataPlane(PAIR)
    unsent, busy = (late.begin(call(deadline=late.clock.now + 1)) for _ in range(2))
    late.clock.now += 1
    refusal(DeadlineExceeded, unsent.not_sent, UNREACHABLE)
    refusal(DeadlineExceeded, busy.refused, OUTCOMES["busy"])
    for plane in (alone, late):
        assert b"servegate_retries_total{" not in plane.meters.text()


# --- the journal: which calls are written down, and who made them --------------------------------


@dataclass(slots=True)
class Journal:
    """Remembers what it is told; `share` says whether it takes good calls."""

    share: bool = True
    lines: list[dict[str, Any]] = field(default_factory=list)

    def takes(self) -> bool:
        return self.share

    def write(self, ended: EndedCall) -> None:
        told = {name: getattr(ended, name) for name in EndedCall.__slots__}
        del told["call"]
        picked = told.pop("choice")
        version = picked and picked.target.version
        self.lines.append(told | {"version": version, "replica": ended.replica.name})


def test_a_call_is_written_down_with_what_became_of_it() -> None:
    journal = Journal()
    plane = DataPlane(snapshot(view(target(2))), journal=journal)
    attempt = plane.begin()
    plane.clock.now += 0.25
    attempt.answered(200, good=True)
    called = {"version": 2, "replica": "a", "tries": 1, "key": ""}
    became = {"code": "200", "seconds": 0.25, "error": "", "good": True}
    assert journal.lines == [called | became]


def test_good_calls_are_left_out_by_their_share_and_others_never() -> None:
    journal = Journal(share=False)
    plane = DataPlane(snapshot(view(target(1, "a", "b"))), journal=journal)
    plane.walk()
    plane.walk(Reply(500, b"{}"))
    plane.walk(asked=call(model="unknown"))
    plane.begin().left()
    assert [(line["code"], line["error"], line["good"]) for line in journal.lines] == [
        ("500", "", False),
        ("unknown_model", "unknown_model", False),
        ("client_left", "client_left", False),
    ]


def test_a_key_is_named_by_its_id_once_it_was_found_to_be_good() -> None:
    journal = Journal()
    key, words = ApiKey.create(Role.PREDICTOR)
    held = replace(snapshot(view(target())), keys=MappingProxyType({key.id: key}), guarded=True)
    plane = DataPlane(held, journal=journal)
    for shown in (words, words[:-1] + ("a" if words[-1] != "a" else "b"), ""):
        asked = call(Verb.INFER)
        asked.credential = f"Bearer {shown}".encode()
        plane.walk(asked=asked)
    assert [(line["error"], line["key"]) for line in journal.lines] == [
        ("", key.id),
        ("unauthenticated", ""),
        ("unauthenticated", ""),
    ]
