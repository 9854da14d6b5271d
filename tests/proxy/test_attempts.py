"""Attempts: ended exactly once, whatever they are told and in whatever order."""

from collections import Counter
from collections.abc import Callable

from builders import DataPlane, call, snapshot, target, view
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from refusals import refusal

from serve.core.calls import Reply, Verb
from serve.core.errors import NotSent, OutcomeUnknown, ServegateError
from serve.proxy.attempts import Attempt, attempts_allowed
from serve.proxy.slots import Slot

UNREACHABLE = NotSent("refused")
BROKEN = OutcomeUnknown("broke")
BUSY = Reply(503, b'{"error":"Exceeds maximum queue size"}')
ABSENT = Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
DEAD = Reply(500, b'{"error":"Stub process \'m_0\' is not healthy."}')
ON_ALL = snapshot(
    view(target(1, "a", "b", "c", "d")),
    view(target(1, "a", "b", "c", model="s"), name="s", sequences=True),
)
LATER = snapshot(
    view(target(1, "c", "d", "e")),
    view(target(1, "e", model="s"), name="s", sequences=True),
    generation=2,
)

ENDINGS: dict[str, Callable[[Attempt], None]] = {
    "answered": lambda attempt: attempt.answered(200, good=True),
    "answered badly": lambda attempt: attempt.answered(500, good=False),
    "failed": lambda attempt: attempt.failed(BROKEN),
    "left": lambda attempt: attempt.left(),
    "passed on": lambda attempt: attempt.passed_on(),
}


def test_an_ending_that_comes_after_the_end_changes_nothing() -> None:
    for second in ENDINGS:
        for first in ENDINGS:
            plane = DataPlane(ON_ALL)
            attempt, _other = plane.begin(), plane.begin()
            ENDINGS[first](attempt)
            before = (repr(plane.loads), plane.meters.text())
            plane.clock.now += 1
            ENDINGS[second](attempt)
            assert (repr(plane.loads), plane.meters.text()) == before, (first, second)


def test_an_attempt_that_has_ended_goes_to_no_other_replica() -> None:
    for ending in ENDINGS:
        plane = DataPlane(ON_ALL)
        attempt, _other = plane.begin(), plane.begin()
        ENDINGS[ending](attempt)
        before = (attempt.replica, repr(plane.loads), repr(plane.health), plane.meters.text())
        refusal(NotSent, attempt.not_sent, UNREACHABLE)
        assert not attempt.refused(ABSENT), ending
        after = (attempt.replica, repr(plane.loads), repr(plane.health), plane.meters.text())
        assert after == before, ending


class Calls(RuleBasedStateMachine):
    """Many calls at a time, told anything in any order; each is followed from outside."""

    attempts, slots = Bundle("attempts"), Bundle("slots")

    def __init__(self) -> None:
        super().__init__()
        self.plane = DataPlane(ON_ALL, limit=4)
        self.live: dict[int, Attempt] = {}
        self.tried: dict[int, list[str]] = {}
        self.kept: dict[Slot, str | None] = {}  # and the model that each counts for
        self.ended = Counter[str]()

    @rule(
        target=attempts,
        model=st.sampled_from(["m", "s", "nobody's", ""]),
        verb=st.sampled_from([Verb.INFER, Verb.STREAM, Verb.METADATA]),
        sequence=st.sampled_from(["", "", "n1"]),
        prefer=st.sampled_from(["", "a", "e"]),
        patience=st.integers(0, 3),
    )
    def begin(self, model: str, verb: Verb, sequence: str, prefer: str, patience: int) -> object:
        verb = verb if model else Verb.SERVER_METADATA
        deadline = self.plane.clock.now + patience
        asked = call(verb, model=model, sequence=sequence, prefer=prefer, deadline=deadline)
        try:
            attempt = self.plane.begin(asked)
        except ServegateError:
            self.ended["errors"] += 1
            return multiple()
        self.live[id(attempt)] = attempt
        self.tried[id(attempt)] = [attempt.replica.name]
        return attempt

    @rule(attempt=attempts)
    def not_sent(self, attempt: Attempt) -> None:
        was_live = id(attempt) in self.live
        try:
            attempt.not_sent(UNREACHABLE)
        except ServegateError:
            if was_live:
                self._has_ended(attempt, "errors")
        else:
            self._went_on(attempt)

    @rule(attempt=attempts, reply=st.sampled_from([BUSY, ABSENT, DEAD]), can_repeat=st.booleans())
    def refused(self, attempt: Attempt, reply: Reply, can_repeat: bool) -> None:
        was_live = id(attempt) in self.live
        try:
            goes_on = attempt.refused(reply, can_repeat=can_repeat)
        except ServegateError:
            assert was_live
            self._has_ended(attempt, "errors")
        else:
            assert not (goes_on and not can_repeat)
            if goes_on:
                self._went_on(attempt)

    @rule(attempt=attempts, ending=st.sampled_from(sorted(ENDINGS)))
    def end(self, attempt: Attempt, ending: str) -> None:
        ENDINGS[ending](attempt)
        if id(attempt) in self.live:
            kinds = {
                "answered": ("calls",),
                "answered badly": ("calls", "errors"),
                "passed on": ("stream_messages",),
            }
            self._has_ended(attempt, *kinds.get(ending, ("errors",)))

    @rule(target=slots, attempt=attempts, ending=st.sampled_from(sorted(ENDINGS)))
    def end_before_its_replica_is_done(self, attempt: Attempt, ending: str) -> object:
        if id(attempt) not in self.live:
            return multiple()
        slot = attempt.detach()
        self.kept[slot] = attempt.call.model if attempt.choice is not None else None
        self.end(attempt, ending)
        return slot

    @rule(slot=slots)
    def free(self, slot: Slot) -> None:
        slot.free()
        self.kept.pop(slot, None)

    @rule(seconds=st.sampled_from([0.25, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.plane.clock.now += seconds

    @rule()
    def swap(self) -> None:
        self.plane.live.swap(LATER)

    @invariant()
    def what_is_in_flight_is_what_has_not_ended_and_what_replicas_still_work_on(self) -> None:
        live = self.live.values()
        models = Counter(one.call.model for one in live if one.choice is not None)
        models.update(model for model in self.kept.values() if model is not None)
        replicas = Counter(one.replica.name for one in live)
        replicas.update(one.replica.name for one in self.kept)
        assert self.plane.loads.models == models
        assert self.plane.loads.replicas == replicas
        assert not any(one.is_ended for one in live)

    @invariant()
    def every_end_is_counted_once(self) -> None:
        counted = Counter[str]()
        for family in self.plane.meters.registry.collect():
            for sample in family.samples:
                kind = sample.name.removeprefix("servegate_").removesuffix("_total")
                if kind in ("calls", "errors", "stream_messages"):
                    counted[kind] += int(sample.value)
        assert counted == self.ended

    def teardown(self) -> None:
        for attempt in list(self.live.values()):
            attempt.left()
        for slot in self.kept:
            slot.free()
        assert repr(self.plane.loads) == "<Loads replicas={} models={}>"

    def _went_on(self, attempt: Attempt) -> None:
        assert id(attempt) in self.live
        tried = self.tried[id(attempt)]
        tried.append(attempt.replica.name)
        assert len(set(tried)) == len(tried)
        stateful = attempt.choice is not None and attempt.choice.stateful
        assert len(tried) <= attempts_allowed(stateful=stateful)

    def _has_ended(self, attempt: Attempt, *kinds: str) -> None:
        assert attempt.is_ended
        del self.live[id(attempt)]
        self.ended.update(kinds)


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=100, stateful_step_count=30)
