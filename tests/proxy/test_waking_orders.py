"""Calls that wait, whatever happens in whatever order: each ends once, and nothing is left."""

from builders import DataPlane, call
from hypothesis import given
from hypothesis import strategies as st

from serve.core.errors import Asleep, Overloaded

from .waking_scene import ASLEEP, AWAKE, BOTH_AWAKE, Caller

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
