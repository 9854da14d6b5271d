"""A child that hangs is killed; one that starts slowly, or has just been replaced, is not."""

import asyncio

from serve.app.watching import SILENCES, Watch, Watched
from serve.processes import Condition, State


class FakeChild:
    """Stands for `Supervised`: a condition, and whether the process answers."""

    def __init__(self) -> None:
        self.condition = Condition(State.RUNNING, pid=11)
        self.is_well = True

    async def answers(self) -> bool:
        return self.is_well


class Scene:
    def __init__(self) -> None:
        self.child = FakeChild()
        self.killed: list[int] = []
        watched = Watched(self.child, self.child.answers)  # type: ignore[arg-type]
        self.watch = Watch({"one": watched}, lambda pid, number: self.killed.append(pid))

    def look(self, times: int = 1) -> None:
        async def several() -> None:
            for _ in range(times):
                await self.watch.look()

        asyncio.run(several())


def test_a_child_that_no_longer_answers_is_killed_once() -> None:
    scene = Scene()
    scene.look()
    scene.child.is_well = False
    scene.look(SILENCES - 1)
    assert scene.killed == []
    scene.look()
    assert scene.killed == [11]
    scene.look(SILENCES)
    assert scene.killed == [11]


def test_a_child_that_has_not_yet_answered_is_given_time() -> None:
    scene = Scene()
    scene.child.is_well = False
    scene.look(10 * SILENCES)
    assert scene.killed == []


def test_an_answer_forgives_earlier_silences() -> None:
    scene = Scene()
    for well in (True, False, False, True, False, False):
        scene.child.is_well = well
        scene.look()
    assert scene.killed == []


def test_a_new_process_is_not_blamed_for_the_old_one() -> None:
    scene = Scene()
    scene.look()
    scene.child.is_well = False
    scene.look(SILENCES - 1)
    scene.child.condition = Condition(State.RUNNING, pid=12)
    scene.look(SILENCES)
    assert scene.killed == []


def test_a_child_that_is_not_running_is_not_asked() -> None:
    scene = Scene()
    scene.look()
    scene.child.is_well = False
    scene.child.condition = Condition(State.BACKING_OFF, pid=None)
    scene.look(10 * SILENCES)
    assert scene.killed == []
