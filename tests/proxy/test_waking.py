"""Calls that wait: for a pool that was scaled to zero, or a version that is not loaded yet."""

import dataclasses

import pytest
from builders import DataPlane, call, snapshot, target, view
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from serve.core.calls import Call, Reply, Verb
from serve.core.errors import (
    Asleep,
    NoReplica,
    NotLoaded,
    Overloaded,
    ServegateError,
    UnknownModel,
    UnknownVersion,
)
from serve.core.routes import Route, Split
from serve.core.snapshot import ModelView
from serve.proxy.attempts import Attempt

AWAITED = Split.of({1: 100})


def sleeping(name: str = "m", **more: object) -> ModelView:
    """A model of which version 1 is called, and whose pool has no replica."""
    return dataclasses.replace(view(name=name, asleep=True, **more), route=Route(AWAITED))


ASLEEP = snapshot(sleeping(), sleeping("n"))
AWAKE = snapshot(view(target(1, "a")), sleeping("n"), generation=2)
BOTH_AWAKE = snapshot(view(target(1, "a")), view(target(1, "a", model="n"), name="n"), generation=2)


class Waiter:
    """What becomes of a call that waits."""

    def __init__(self) -> None:
        self.attempt: Attempt | None = None
        self.error: ServegateError | None = None

    def on_awake(self, attempt: Attempt) -> None:
        assert self.attempt is None and self.error is None
        self.attempt = attempt

    def on_asleep(self, error: ServegateError) -> None:
        assert self.attempt is None and self.error is None
        self.error = error

    def on_fault(self, error: Exception) -> None:
        raise error


class Caller(Waiter):
    """One whose call finds its pool asleep, and waits."""

    def __init__(self, plane: DataPlane, asked: Call | None = None) -> None:
        super().__init__()
        asked = asked or call()
        with pytest.raises(Asleep):
            plane.begin(asked)
        self.waiting = plane.gateway.wait(asked, self)


def failures(plane: DataPlane, error: str) -> float:
    labels = {"model": "", "version": "", "route": "", "protocol": "http"}
    return plane.count("servegate_errors_total", **labels, error=error)


def test_a_call_for_a_pool_without_replicas_waits_and_goes_on_when_there_is_one() -> None:
    plane = DataPlane(ASLEEP)
    caller = Caller(plane)
    plane.clock.now += 7
    plane.gateway.sweep()
    assert caller.attempt is None and plane.waking.waiting == {"m": 1}
    assert repr(plane.waking) == "<Waking 1 of 4 calls>"
    assert repr(caller.waiting) == "<Waiting m for its pool>"
    plane.wake(AWAKE)
    assert caller.attempt is not None
    assert caller.attempt.replica == AWAKE.replicas["a"]
    assert caller.attempt.decision == "1; by=latest; generation=2"
    assert caller.attempt.begun == plane.clock.now - 7
    assert plane.waking.waiting == {}
    caller.attempt.answered(200, good=True)
    assert plane.loads.total == 0
    assert failures(plane, "asleep") == 0


def test_the_control_plane_is_told_once_of_each_model_that_is_waited_for() -> None:
    plane = DataPlane(ASLEEP)
    callers = [Caller(plane, call(model=model)) for model in ("m", "m", "n", "m")]
    assert plane.news == 2
    assert plane.waking.waiting == {"m": 3, "n": 1}
    plane.wake(AWAKE)
    assert [one.attempt is not None for one in callers] == [True, True, False, True]
    assert plane.waking.waiting == {"n": 1}


def test_the_control_plane_is_told_of_models_whose_calls_could_not_be_kept() -> None:
    """They may come again, and others must not keep their pool asleep."""
    for kept in (0, 1):
        plane = DataPlane(ASLEEP, waking_calls=kept)
        if kept:
            Caller(plane, call(model="n"))
        before = plane.news
        for _ in range(3):
            with pytest.raises(Asleep, match=f"{kept} calls are already waiting") as refused:
                Caller(plane)
            assert refused.value.retry_after > 0
        assert failures(plane, "asleep") == 3
        assert plane.news == before + 1, kept
        others = {"n"} if kept else set()
        assert plane.waking.wanted() == {"m"} | others, kept
        assert plane.waking.wanted() == others, kept


def test_a_call_whose_caller_has_left_makes_room_for_another_and_does_not_go_on() -> None:
    plane = DataPlane(ASLEEP, waking_calls=1)
    gone = Caller(plane)
    gone.waiting.left()
    gone.waiting.left()
    assert repr(gone.waiting) == "<Waiting m ended>"
    other = Caller(plane)
    plane.wake(AWAKE)
    assert gone.attempt is None and gone.error is None
    assert failures(plane, "client_left") == 1
    assert other.attempt is not None and plane.loads.total == 1


def test_a_pool_that_does_not_wake_in_time_is_said_so() -> None:
    plane = DataPlane(ASLEEP)
    caller = Caller(plane)
    plane.clock.now += 9.9
    plane.gateway.sweep()
    assert caller.error is None
    plane.clock.now += 0.1
    plane.gateway.sweep()
    assert isinstance(caller.error, Asleep)
    assert str(caller.error).startswith(
        "no replica is ready for model 'm': its pool did not start within 10 s"
    )
    assert failures(plane, "asleep") == 1
    assert plane.waking.waiting == {}


def test_a_call_waits_no_longer_than_its_deadline() -> None:
    for wakes in (False, True):
        plane = DataPlane(ASLEEP)
        caller = Caller(plane, call(deadline=plane.clock.now + 3))
        plane.clock.now += 3
        plane.wake(AWAKE) if wakes else plane.gateway.sweep()
        assert "within 3 s" in str(caller.error)
        assert plane.loads.total == 0


def test_as_many_go_on_as_admission_lets_in_and_the_others_a_little_later() -> None:
    plane = DataPlane(ASLEEP, limit=2)
    callers = [Caller(plane) for _ in range(3)]
    plane.wake(AWAKE)
    begun = [one.attempt for one in callers]
    assert [one is not None for one in begun] == [True, True, False]
    assert begun[0] is not None
    begun[0].answered(200, good=True)
    plane.gateway.sweep()
    assert callers[2].attempt is not None
    assert plane.loads.models == {"m": 2}


def test_calls_go_on_in_the_order_in_which_they_came() -> None:
    plane = DataPlane(ASLEEP)
    order: list[str] = []

    class Ordered(Caller):
        def on_awake(self, attempt: Attempt) -> None:
            order.append(attempt.call.model)

    for model in ("m", "n", "m"):
        Ordered(plane, call(model=model))
    plane.wake(BOTH_AWAKE)
    assert order == ["m", "n", "m"]


def test_every_way_to_name_a_version_waits() -> None:
    for selector in ("", "1", "stable"):
        plane = DataPlane(snapshot(sleeping(labels={"stable": 1})))
        caller = Caller(plane, call(selector=selector))
        plane.wake(snapshot(view(target(1, "a"), labels={"stable": 1}), generation=2))
        assert caller.attempt is not None and caller.attempt.choice is not None, selector
        assert caller.attempt.choice.target.version == 1, selector


def test_a_version_that_is_not_there_yet_is_waited_for_while_another_answers() -> None:
    both = Split.of({1: 50, 2: 50})
    half = dataclasses.replace(view(target(1, "a"), asleep=True), route=Route(both))
    plane = DataPlane(snapshot(half))
    caller = Caller(plane, call(selector="2"))
    assert plane.walk(asked=call(selector="1")).tried == ["a"]
    plane.wake(snapshot(view(target(1, "a"), target(2, "a")), generation=2))
    assert caller.attempt is not None


def test_a_version_that_turns_out_not_to_exist_is_said_so_once_the_pool_is_awake() -> None:
    plane = DataPlane(ASLEEP)
    caller = Caller(plane, call(selector="9"))
    plane.wake(AWAKE)
    assert isinstance(caller.error, UnknownVersion)
    assert failures(plane, "unknown_version") == 1


def test_what_cannot_be_served_any_more_is_not_waited_for() -> None:
    for now, expected in (
        (snapshot(generation=2), UnknownModel),
        (snapshot(view(failed=True), generation=2), NoReplica),
    ):
        plane = DataPlane(ASLEEP)
        caller = Caller(plane)
        plane.wake(now)
        assert type(caller.error) is expected, now
        assert plane.waking.waiting == {}, now


def test_a_question_whether_a_model_is_ready_does_not_wake_its_pool() -> None:
    plane = DataPlane(ASLEEP)
    with pytest.raises(Asleep, match="scaled to zero"):
        Caller(plane, call(Verb.READY))
    assert plane.news == 0 and plane.waking.wanted() == frozenset()


def test_nobody_waits_in_a_worker_that_stops() -> None:
    plane = DataPlane(ASLEEP)
    caller = Caller(plane)
    plane.waking.close()
    assert "this worker is stopping" in str(caller.error)
    with pytest.raises(Asleep, match="this worker is stopping"):
        Caller(plane)


def test_a_caller_that_gives_up_while_others_are_told_hears_nothing() -> None:
    """What becomes of one call may end others, of the same connection, say."""
    plane = DataPlane(ASLEEP)

    class Ending(Caller):
        def on_asleep(self, error: ServegateError) -> None:
            super().on_asleep(error)
            other.waiting.left()

    first = Ending(plane)
    other = Caller(plane)
    plane.clock.now += 10
    plane.gateway.sweep()
    assert first.error is not None and other.error is None


@pytest.mark.parametrize("is_woken", [True, False])
def test_a_caller_that_fails_does_not_keep_the_news_from_those_behind_it(is_woken: bool) -> None:
    plane = DataPlane(ASLEEP)
    faults: list[str] = []

    class Failing(Caller):
        def on_awake(self, attempt: Attempt) -> None:
            raise ZeroDivisionError("awake")

        def on_asleep(self, error: ServegateError) -> None:
            raise ZeroDivisionError("asleep")

        def on_fault(self, error: Exception) -> None:
            faults.append(str(error))

    Failing(plane)
    other = Caller(plane)
    if is_woken:
        plane.wake(AWAKE)
        assert faults == ["awake"] and other.attempt is not None
        other.attempt.answered(200, good=True)
    else:
        plane.clock.now += 10
        plane.gateway.sweep()
        assert faults == ["asleep"] and other.error is not None
    assert plane.loads.total == 0


# --- a version that the snapshot says is served, and that no replica has loaded yet -------------

ON_ALL = snapshot(view(target(1, "a", "b", "c", "d")))
ABSENT = Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
LABELS = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}


def absent(attempt: Attempt) -> tuple[Attempt, NotLoaded]:
    """The attempt ends because none of its replicas has loaded the version."""
    with pytest.raises(NotLoaded) as raised:
        while attempt.refused(ABSENT):
            pass
    return attempt, raised.value


def test_a_call_that_no_replica_has_loaded_waits_and_begins_anew_with_each_look() -> None:
    plane, waits = DataPlane(ON_ALL), Waiter()
    attempt, error = absent(plane.begin())
    plane.gateway.wait_loaded(attempt, waits, error)
    assert plane.waking.count == 1 and plane.waking.wanted() == frozenset()
    assert plane.news == 0  # its pool is awake
    assert plane.count("servegate_errors_total", error="not_loaded", **LABELS) == 0
    plane.gateway.sweep()
    assert waits.attempt is not None and plane.waking.count == 0
    waits.attempt.answered(200, good=True)
    assert plane.count("servegate_calls_total", code="200", verb="infer", **LABELS) == 1


def test_a_call_waits_for_a_version_for_a_second_from_its_beginning_and_not_longer() -> None:
    plane = DataPlane(ON_ALL)
    attempt, error = absent(plane.begin())
    begun = attempt.begun
    for _ in range(3):
        waits = Waiter()
        plane.gateway.wait_loaded(attempt, waits, error)
        plane.clock.now += 0.3
        plane.gateway.sweep()
        assert waits.attempt is not None and waits.attempt.begun == begun
        attempt, error = absent(waits.attempt)
    waits = Waiter()
    plane.gateway.wait_loaded(attempt, waits, error)
    plane.clock.now += 0.2
    plane.gateway.sweep()
    assert isinstance(waits.error, NotLoaded)
    assert plane.waking.count == 0
    assert plane.count("servegate_errors_total", error="not_loaded", **LABELS) == 1


def test_a_call_that_cannot_wait_for_a_version_is_refused_and_counted() -> None:
    for why in ("no place", "the worker stops", "no time"):
        plane = DataPlane(ON_ALL, waking_calls=0 if why == "no place" else 4)
        attempt, error = absent(plane.begin(call(deadline=plane.clock.now + 0.5)))
        if why == "the worker stops":
            plane.waking.close()
        plane.clock.now += 0.5 if why == "no time" else 0.0
        refused = refusal(NotLoaded, plane.gateway.wait_loaded, attempt, Waiter(), error)
        assert refused is error, why
        assert plane.count("servegate_errors_total", error="not_loaded", **LABELS) == 1, why


def test_a_call_of_a_sequence_does_not_wait_for_its_model() -> None:
    plane = DataPlane(snapshot(view(target(1, "a", "b"), sequences=True)))
    _, error = absent(plane.begin(call(sequence="n1")))
    assert not error.until


# --- in any order ---------------------------------------------------------------------------------

LIMIT = 3
STEPS = st.sampled_from(["m", "n", "leave", "answer", "time", "wake", "wake both", "sleep"])


class World:
    """A data plane, those who called it, and which of them have an attempt."""

    def __init__(self) -> None:
        self.plane = DataPlane(ASLEEP, limit=2, waking_calls=LIMIT)
        self.callers: list[Caller] = []
        self.gone: set[int] = set()

    def step(self, what: str) -> None:
        plane = self.plane
        if what in ("m", "n"):
            self.come(what)
        elif what == "leave":
            self.end_first(is_answered=False)
        elif what == "answer":
            self.end_first(is_answered=True)
        elif what == "time":
            plane.clock.now += 4
            plane.gateway.sweep()
        else:
            plane.wake({"wake": AWAKE, "wake both": BOTH_AWAKE, "sleep": ASLEEP}[what])

    def come(self, model: str) -> None:
        try:
            plane = self.plane
            attempt = plane.begin(call(model=model))
        except Asleep:
            if sum(plane.waking.waiting.values()) < LIMIT:
                self.callers.append(Caller(plane, call(model=model)))
        except Overloaded:
            return
        else:
            attempt.answered(200, good=True)

    def end_first(self, *, is_answered: bool) -> None:
        """The first that has an attempt, or still waits, ends."""
        for number, one in enumerate(self.callers):
            if number in self.gone or one.error is not None:
                continue
            if (one.attempt is not None) is is_answered:
                self.gone.add(number)
                (one.attempt or one.waiting).left()
                return


@given(st.lists(STEPS, max_size=40))
def test_each_call_ends_once_and_nothing_is_left(steps: list[str]) -> None:
    world = World()
    for what in steps:
        world.step(what)
        waiting = world.plane.waking.waiting
        assert sum(waiting.values()) <= LIMIT
        assert all(waiting.values())
    for one in world.callers:
        if one.attempt is not None and not one.attempt.is_ended:
            one.attempt.left()
    world.plane.waking.close()
    assert world.plane.waking.waiting == {}
    assert world.plane.loads.total == 0
    for number, one in enumerate(world.callers):
        assert one.waiting.is_ended
        heard = (one.attempt is not None) + (one.error is not None)
        assert heard == 1 or (heard == 0 and number in world.gone)
