"""The gateway: the walk of a call, and the retry rule under every outcome."""

import asyncio
import contextlib

import pytest
from builders import (
    GOOD,
    GOOD_GRPC,
    DataPlane,
    Outcome,
    call,
    snapshot,
    target,
    until,
    view,
)

from serve.core.calls import Call, Reply, Verb
from serve.core.errors import (
    DeadlineExceeded,
    NoReplica,
    NoSnapshot,
    NotSent,
    OutcomeUnknown,
    Overloaded,
    UnknownModel,
)
from serve.core.snapshot import Snapshot
from serve.proxy.gateway import Answer
from serve.proxy.health import FIRST_PAUSE

ON_ALL = snapshot(view(target(1, "a", "b", "c", "d")), generation=7)
UNREACHABLE = NotSent("replica cannot be reached", why="refused")
BUSY = Reply(503, b'{"error":"Exceeds maximum queue size"}')
ABSENT = Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
ABSENT_GRPC = Reply(5, b"", (), "Request for unknown model: 'm' version 1 is not found")
BROKEN = OutcomeUnknown("the connection broke")


def send(plane: DataPlane, asked: Call | None = None) -> Answer:
    return asyncio.run(plane.gateway.handle(asked or call()))


def test_an_answer_carries_the_decision_that_led_to_it() -> None:
    answer = send(DataPlane(ON_ALL))
    assert answer.reply is GOOD
    assert answer.decision == "1; by=latest; generation=7"
    assert answer.replica == "a"


def test_a_grpc_call_goes_through_the_grpc_transport() -> None:
    plane = DataPlane(ON_ALL)
    assert send(plane, call(protocol="grpc")).reply is GOOD_GRPC
    assert (plane.http.tried, plane.grpc.tried) == ([], ["a"])


def test_calls_take_turns_over_the_replicas() -> None:
    plane = DataPlane(ON_ALL)
    assert [send(plane).replica for _ in range(5)] == ["a", "b", "c", "d", "a"]


@pytest.mark.parametrize("outcome", [UNREACHABLE, BUSY, ABSENT])
def test_another_replica_is_tried_after_what_was_provably_not_executed(outcome: Outcome) -> None:
    plane = DataPlane(ON_ALL, {"a": outcome})
    answer = send(plane)
    assert (answer.reply, plane.http.tried) == (GOOD, ["a", answer.replica])


def test_a_refusal_over_grpc_is_tried_elsewhere_too() -> None:
    plane = DataPlane(ON_ALL, {"a": ABSENT_GRPC})
    assert send(plane, call(protocol="grpc")).reply is GOOD_GRPC


@pytest.mark.parametrize("outcome", [UNREACHABLE, BUSY, ABSENT])
def test_at_most_three_replicas_are_tried_and_none_twice(outcome: Outcome) -> None:
    plane = DataPlane(ON_ALL, dict.fromkeys("abcd", outcome))
    try:
        send(plane)
    except NoReplica:
        pass
    assert len(plane.http.tried) == len(set(plane.http.tried)) == 3


def test_a_pair_of_replicas_is_tried_once_each() -> None:
    plane = DataPlane(snapshot(view(target(1, "a", "b"))), dict.fromkeys("ab", UNREACHABLE))
    with pytest.raises(NoReplica, match="version 1: replica cannot be reached: refused"):
        send(plane)
    assert sorted(plane.http.tried) == ["a", "b"]


def test_when_all_refuse_the_caller_gets_tritons_own_words() -> None:
    assert send(DataPlane(ON_ALL, dict.fromkeys("abcd", BUSY))).reply is BUSY


def test_a_refusal_is_worth_more_than_a_replica_that_cannot_be_reached() -> None:
    pair = snapshot(view(target(1, "a", "b")))
    assert send(DataPlane(pair, {"a": BUSY, "b": UNREACHABLE})).reply is BUSY


@pytest.mark.parametrize("outcome", [BROKEN, DeadlineExceeded()])
def test_what_may_have_been_executed_is_never_tried_again(outcome: Exception) -> None:
    plane = DataPlane(ON_ALL, {"a": outcome})
    with pytest.raises(type(outcome)):
        send(plane)
    assert plane.http.tried == ["a"]


@pytest.mark.parametrize("status", [400, 404, 429, 500, 501, 502, 504])
def test_any_other_answer_is_the_answer(status: int) -> None:
    reply = Reply(status, b'{"error":"no"}')
    plane = DataPlane(ON_ALL, {"a": reply})
    assert send(plane).reply is reply
    assert plane.http.tried == ["a"]


@pytest.mark.parametrize("outcome", [UNREACHABLE, BUSY, ABSENT])
def test_the_calls_of_a_sequence_are_never_tried_again(outcome: Outcome) -> None:
    stateful = snapshot(view(target(1, "a", "b", "c", "d"), sequences=True))
    plane = DataPlane(stateful, dict.fromkeys("abcd", outcome))
    with contextlib.suppress(NoReplica):
        send(plane, call(sequence="n77"))
    with contextlib.suppress(NoReplica):
        send(plane, call())  # its correlation id could not be read: it may have one all the same
    assert len(plane.http.tried) == 2


def test_a_sequence_stays_on_one_replica() -> None:
    plane = DataPlane(ON_ALL)
    assert len({send(plane, call(sequence="n77")).replica for _ in range(6)}) == 1


def test_a_replica_that_could_not_be_reached_is_avoided_for_a_while() -> None:
    plane = DataPlane(ON_ALL, {"a": UNREACHABLE})
    for _ in range(8):
        send(plane)
    assert plane.http.tried.count("a") == 1


def test_a_replica_that_has_answered_is_trusted_as_before() -> None:
    plane = DataPlane(snapshot(view(target(1, "a"))))
    for outcome in (UNREACHABLE, GOOD, UNREACHABLE):
        plane.http.outcomes["a"] = outcome
        try:
            send(plane)
        except NoReplica:
            plane.clock.now += FIRST_PAUSE
    assert plane.health.is_usable("a")


def test_a_replica_that_lacks_a_version_is_avoided_for_that_version_only() -> None:
    both = snapshot(view(target(1, "a", "b"), target(2, "a", "b")))
    plane = DataPlane(both, {"a": ABSENT})
    send(plane, call(selector="1"))
    plane.http.outcomes.clear()
    first = {send(plane, call(selector="1")).replica for _ in range(4)}
    second = {send(plane, call(selector="2")).replica for _ in range(4)}
    assert (first, second) == ({"b"}, {"a", "b"})


def test_a_busy_replica_is_not_avoided() -> None:
    plane = DataPlane(ON_ALL, {"a": BUSY})
    for _ in range(8):
        send(plane)
    assert plane.http.tried.count("a") > 1


def test_the_less_busy_replica_is_picked() -> None:
    async def scenario() -> list[str]:
        pair = snapshot(view(target(1, "a", "b")))
        held = asyncio.Event()
        plane = DataPlane(pair, {"a": held})
        first = asyncio.create_task(plane.gateway.handle(call()))
        await until(plane.http.entered.is_set)
        for _ in range(3):
            await plane.gateway.handle(call())
        held.set()
        await first
        return plane.http.tried

    assert asyncio.run(scenario()) == ["a", "b", "b", "b"]


def test_a_call_sees_one_generation_from_beginning_to_end() -> None:
    async def scenario() -> Answer:
        held = asyncio.Event()
        plane = DataPlane(ON_ALL, {"a": held})
        begun = asyncio.create_task(plane.gateway.handle(call()))
        await until(plane.http.entered.is_set)
        plane.live.swap(snapshot(generation=8))
        held.set()
        return await begun

    assert asyncio.run(scenario()).generation == 7


def test_a_deadline_that_has_passed_sends_nothing() -> None:
    plane = DataPlane(ON_ALL)
    with pytest.raises(DeadlineExceeded):
        send(plane, call(deadline=plane.clock.now))
    assert plane.http.tried == []


def test_the_deadline_holds_over_all_attempts() -> None:
    class Late(NotSent):
        """Sets the clock forward when it is raised."""

        def __init__(self, plane: DataPlane) -> None:
            super().__init__("refused, late")
            self.plane = plane

        def __str__(self) -> str:
            self.plane.clock.now += 10
            return super().__str__()

    plane = DataPlane(ON_ALL)
    plane.http.outcomes["a"] = Late(plane)
    with pytest.raises(DeadlineExceeded):
        send(plane, call(deadline=plane.clock.now + 5))
    assert plane.http.tried == ["a"]


def test_the_model_at_its_limit_refuses_at_once() -> None:
    async def scenario() -> list[str]:
        held = asyncio.Event()
        plane = DataPlane(ON_ALL, {"a": held}, limit=1)
        first = asyncio.create_task(plane.gateway.handle(call()))
        await until(plane.http.entered.is_set)
        with pytest.raises(Overloaded):
            await plane.gateway.handle(call())
        held.set()
        await first
        return plane.http.tried

    assert asyncio.run(scenario()) == ["a"]


@pytest.mark.parametrize(
    ("plane", "error"),
    [(None, NoSnapshot), (snapshot(), UnknownModel), (snapshot(view()), NoReplica)],
)
def test_a_call_that_nobody_can_take_is_an_error(
    plane: Snapshot | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        send(DataPlane(plane))


def test_the_servers_metadata_come_from_any_replica() -> None:
    plane = DataPlane(ON_ALL, {"a": UNREACHABLE})
    answer = send(plane, call(Verb.SERVER_METADATA, model=""))
    assert (answer.reply, answer.decision) == (GOOD, "")


@pytest.mark.parametrize(
    ("now", "ready"),
    [
        (None, False),
        (snapshot(), False),
        (snapshot(replicas=["a"]), True),
        (ON_ALL, True),
        (snapshot(view(target(1)), view(name="empty")), False),
        (snapshot(view(target(1)), view(name="broken", failed=True)), True),
        (snapshot(view(target(1), split="1=1 2=1")), False),
        (snapshot(view(target(1), split="1=1 2=0")), True),
    ],
)
def test_the_gateway_is_ready_when_every_routed_version_has_a_replica(
    now: Snapshot | None, ready: bool
) -> None:
    assert DataPlane(now).gateway.is_ready() is ready


def test_only_models_with_sequences_have_their_correlation_ids_read() -> None:
    both = snapshot(view(target(1), sequences=True), view(target(1, model="x"), name="x"))
    gateway = DataPlane(both).gateway
    assert [gateway.serves_sequences(name) for name in ("m", "x", "?")] == [True, False, False]
    assert not DataPlane(None).gateway.serves_sequences("m")
