"""The gateway: the walk of a call, and the retry rule under every outcome."""

import dataclasses

import pytest
from builders import GOOD, GOOD_GRPC, DataPlane, call, replica, snapshot, target, view
from refusals import refusal

from serve.core.calls import Reply, Verb
from serve.core.errors import (
    DeadlineExceeded,
    NoReplica,
    NoSnapshot,
    NotLoaded,
    NotSent,
    OutcomeUnknown,
    Overloaded,
    UnknownModel,
)
from serve.proxy.gateway import LiveSnapshot
from serve.proxy.health import FIRST_PAUSE

ON_ALL = snapshot(view(target(1, "a", "b", "c", "d")), generation=7)
PAIR = snapshot(view(target(1, "a", "b")))
UNREACHABLE = NotSent("replica cannot be reached", why="refused")
BUSY = Reply(503, b'{"error":"Exceeds maximum queue size"}')
ABSENT = Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
ABSENT_GRPC = Reply(5, b"", (), "Request for unknown model: 'm' version 1 is not found")
BROKEN = OutcomeUnknown("the connection broke")
DEAD = Reply(500, b'{"error":"Stub process \'m_0\' is not healthy."}')
NOT_EXECUTED = (UNREACHABLE, BUSY, ABSENT)


def test_an_attempt_carries_the_decision_that_led_to_it() -> None:
    attempt = DataPlane(ON_ALL).begin()
    assert attempt.decision == "1; by=latest; generation=7"
    assert attempt.replica == ON_ALL.replicas["b"]
    assert attempt.choice is not None
    assert attempt.choice.target == ON_ALL.models["m"].targets[1]
    assert repr(attempt) == "<Attempt m m/1 on b>"
    attempt.left()
    assert repr(attempt) == "<Attempt m m/1 ended>"


def test_calls_take_turns_over_the_replicas() -> None:
    plane = DataPlane(ON_ALL)
    assert [plane.walk().tried for _ in range(5)] == [["b"], ["c"], ["d"], ["a"], ["b"]]


def test_another_replica_is_tried_after_what_was_provably_not_executed() -> None:
    for outcome, protocol, good in (
        (UNREACHABLE, "http", GOOD),
        (BUSY, "http", GOOD),
        (ABSENT, "http", GOOD),
        (ABSENT_GRPC, "grpc", GOOD_GRPC),
    ):
        walk = DataPlane(ON_ALL).walk(outcome, asked=call(protocol=protocol))
        assert walk.reply is good, outcome
        assert len(walk.tried) == len(set(walk.tried)) == 2, outcome


def test_at_most_three_replicas_are_tried_and_none_twice() -> None:
    for outcome in NOT_EXECUTED:
        walk = DataPlane(ON_ALL).walk(*[outcome] * 5)
        assert len(walk.tried) == len(set(walk.tried)) == 3, outcome


def test_a_pair_of_replicas_is_tried_once_each() -> None:
    walk = DataPlane(PAIR).walk(UNREACHABLE, UNREACHABLE)
    assert sorted(walk.tried) == ["a", "b"]
    assert isinstance(walk.error, NoReplica)
    assert "version 1: replica cannot be reached: refused" in str(walk.error)


def test_when_all_refuse_the_caller_gets_tritons_own_words() -> None:
    walk = DataPlane(ON_ALL).walk(BUSY, ABSENT, BUSY)
    assert walk.reply is BUSY
    assert len(walk.tried) == 3


def test_a_request_that_is_no_longer_at_hand_is_not_repeated() -> None:
    plane = DataPlane(ON_ALL)
    attempt = plane.begin()
    before = attempt.replica
    assert not attempt.refused(BUSY, can_repeat=False)
    assert attempt.replica is before and not attempt.is_ended
    assert plane.health.is_usable(before.name, "m/1")  # who is busy is not avoided
    with pytest.raises(NotLoaded) as raised:
        attempt.refused(ABSENT, can_repeat=False)
    assert attempt.is_ended and not raised.value.until
    assert not plane.health.is_usable(before.name, "m/1")  # what it said is learned all the same


def test_what_may_have_been_executed_is_never_tried_again() -> None:
    for outcome in (BROKEN, DeadlineExceeded()):
        walk = DataPlane(ON_ALL).walk(outcome)
        assert walk.error is outcome, outcome
        assert len(walk.tried) == 1, outcome
    for status in (400, 404, 429, 500, 501, 502, 503, 504):
        reply = Reply(status, b'{"error":"no"}')
        walk = DataPlane(ON_ALL).walk(reply)
        assert walk.reply is reply, status
        assert len(walk.tried) == 1, status


def test_the_calls_of_a_model_with_sequences_are_never_tried_again() -> None:
    """Without a correlation id too: perhaps it has one that could not be read."""
    stateful = snapshot(view(target(1, "a", "b", "c", "d"), sequences=True))
    for outcome in NOT_EXECUTED:
        for sequence in ("n77", ""):
            walk = DataPlane(stateful).walk(outcome, asked=call(sequence=sequence))
            assert len(walk.tried) == 1, (outcome, sequence)


def test_a_sequence_stays_on_its_replica_even_while_that_is_avoided() -> None:
    plane = DataPlane(ON_ALL)
    place = plane.walk(asked=call(sequence="n77")).tried[0]
    plane.health.failed(place)
    assert plane.walk(asked=call(sequence="n77")).tried == [place]


def test_a_message_stays_on_the_replica_of_its_stream_while_that_can_be_reached() -> None:
    plane = DataPlane(ON_ALL)
    held = [plane.begin(call(Verb.STREAM, protocol="grpc", prefer="c")) for _ in range(5)]
    assert {attempt.replica.name for attempt in held} == {"c"}
    held[0].not_sent(UNREACHABLE)
    assert held[0].replica.name != "c"
    elsewhere = DataPlane(PAIR).begin(call(Verb.STREAM, protocol="grpc", prefer="c"))
    assert elsewhere.replica.name in "ab"


def test_a_replica_that_could_not_be_reached_is_avoided_for_a_while() -> None:
    plane = DataPlane(ON_ALL)
    away = plane.walk(UNREACHABLE).tried[0]
    assert all(away not in plane.walk().tried for _ in range(8))
    plane.clock.now += FIRST_PAUSE
    assert any(away in plane.walk().tried for _ in range(8))
    plane.health.failed(away)
    plane.clock.now += FIRST_PAUSE  # it has answered: a pause that had doubled would last longer
    assert plane.health.is_usable(away)


def test_a_replica_that_lacks_a_version_is_avoided_for_that_version_only() -> None:
    both = snapshot(view(target(1, "a", "b"), target(2, "a", "b")))
    plane = DataPlane(both)
    without = plane.walk(ABSENT, asked=call(selector="1")).tried[0]
    first = {plane.walk(asked=call(selector="1")).tried[0] for _ in range(4)}
    second = {plane.walk(asked=call(selector="2")).tried[0] for _ in range(4)}
    assert first == {"a", "b"} - {without}
    assert second == {"a", "b"}


def test_a_replica_on_which_the_models_process_has_died_is_avoided_for_that_version() -> None:
    plane = DataPlane(PAIR)
    walk = plane.walk(DEAD)
    assert walk.reply is DEAD
    assert not plane.health.is_usable(walk.tried[0], "m/1")
    assert plane.health.is_usable(walk.tried[0], "x/1")


def test_the_less_busy_replica_is_picked() -> None:
    plane = DataPlane(PAIR)
    held = plane.begin().replica.name
    assert held not in [name for _ in range(3) for name in plane.walk().tried]


def test_a_call_sees_one_generation_from_beginning_to_end() -> None:
    plane = DataPlane(ON_ALL)
    attempt = plane.begin()
    plane.live.swap(snapshot(view(target(1, "z")), generation=8))
    attempt.not_sent(UNREACHABLE)
    assert attempt.replica.name in "abcd"
    assert attempt.decision.endswith("generation=7")
    assert plane.walk().decision == "1; by=latest; generation=8"


def test_the_deadline_holds_over_all_attempts() -> None:
    plane = DataPlane(ON_ALL)
    walk = plane.walk(asked=call(deadline=plane.clock.now))
    assert isinstance(walk.error, DeadlineExceeded)
    assert walk.tried == []
    unsent, busy = (plane.begin(call(deadline=plane.clock.now + 5)) for _ in range(2))
    plane.clock.now += 5
    refusal(DeadlineExceeded, unsent.not_sent, UNREACHABLE)
    refusal(DeadlineExceeded, busy.refused, BUSY)


def test_the_model_at_its_limit_refuses_at_once_until_a_call_ends() -> None:
    plane = DataPlane(ON_ALL, limit=1)
    held = plane.begin()
    walk = plane.walk()
    assert isinstance(walk.error, Overloaded)
    assert walk.tried == []
    held.left()
    assert plane.walk().reply is GOOD


def test_a_call_that_nobody_can_take_is_an_error() -> None:
    nowhere = dataclasses.replace(target(1), replicas=())
    for now, error in (
        (None, NoSnapshot),
        (snapshot(), UnknownModel),
        (snapshot(view()), NoReplica),
        (snapshot(view(nowhere)), NoReplica),
    ):
        refusal(error, DataPlane(now).begin)
    refusal(NoReplica, DataPlane(snapshot()).begin, call(Verb.SERVER_METADATA, model=""))


def test_the_servers_metadata_come_from_any_replica() -> None:
    plane = DataPlane(ON_ALL)
    asked = call(Verb.SERVER_METADATA, model="")
    walk = plane.walk(UNREACHABLE, asked=asked)
    assert (walk.reply, walk.decision, len(walk.tried)) == (GOOD, "", 2)


def test_the_gateway_is_ready_when_every_routed_version_has_a_replica_or_sleeps() -> None:
    sleeping = view(name="asleep", asleep=True)
    for now, ready in (
        (None, False),
        (snapshot(), False),
        (snapshot(replicas=["a"]), True),
        (ON_ALL, True),
        (snapshot(view()), False),
        (snapshot(view(target(1)), view(name="empty")), False),
        (snapshot(view(target(1)), view(name="broken", failed=True)), True),
        (snapshot(view(target(1), split="1=1 2=1")), False),
        (snapshot(view(target(1), split="1=1 2=0")), True),
        (snapshot(sleeping), True),
        (snapshot(view(target(1)), sleeping), True),
        (snapshot(sleeping, view(name="empty")), False),
    ):
        assert DataPlane(now).gateway.is_ready() is ready, now


def test_only_models_with_sequences_have_their_correlation_ids_read() -> None:
    both = snapshot(view(target(1), sequences=True), view(target(1, model="x"), name="x"))
    gateway = DataPlane(both).gateway
    assert [gateway.serves_sequences(name, b"") for name in ("m", "x", "?")] == [True, False, False]
    assert not DataPlane(None).gateway.serves_sequences("m", b"")


def test_a_replica_is_had_as_long_as_the_snapshot_has_it_at_this_address() -> None:
    plane = DataPlane(None)
    assert not plane.gateway.has(replica("a"))
    plane.live.swap(snapshot(replicas=["a"]))
    assert plane.gateway.has(replica("a"))
    assert not plane.gateway.has(replica("a", http=9000))
    plane.live.swap(snapshot(generation=2))
    assert not plane.gateway.has(replica("a"))


# --- the snapshot in force ------------------------------------------------------------------------


def test_a_snapshot_is_swapped_whole_and_never_for_an_older_one() -> None:
    live, newer = LiveSnapshot(), snapshot(generation=5)
    assert live.generation == 0
    with pytest.raises(NoSnapshot):
        _ = live.snapshot
    assert live.swap(snapshot(generation=2))
    assert live.swap(newer)
    for generation in (5, 4, 1, 0, -1):
        assert not live.swap(snapshot(generation=generation)), generation
        assert live.snapshot is newer, generation
