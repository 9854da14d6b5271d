"""Autoscaling on one machine: what is started and stopped for a hint, and when."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

from builders import Clock, replica, until
from loops import in_loop

from serve.app.local_autoscaler import RETRY, Autoscaler, ReplicaPlan, ReplicaWish, plan
from serve.core.errors import TritonDidNotStart
from serve.core.replicas import Replica
from serve.processes import ProcessCondition, SupervisedState

PATIENCE = 20.0  # seconds; a bound


# --- the next step towards what is wanted ---------------------------------------------------------

NAMES = ("local-0", "local-1", "local-2")


def test_those_that_start_go_first_then_what_does_not_run_then_the_newest() -> None:
    for desired, expected in (
        (5, ReplicaPlan(start=1)),
        (4, ReplicaPlan()),
        (3, ReplicaPlan(stop=("local-3",))),
        (2, ReplicaPlan(give_away=("local-1",), stop=("local-3",))),
        (1, ReplicaPlan(give_away=("local-1", "local-2"), stop=("local-3",))),
        (0, ReplicaPlan(give_away=("local-1", "local-2", "local-0"), stop=("local-3",))),
    ):
        wish = ReplicaWish(desired, may_shrink=True, lasts=30.0)
        made = plan(wish, serving=NAMES, starting=["local-3"], leaving=[], broken=["local-1"])
        assert made == expected, desired


def test_those_on_their_way_out_come_back_before_any_is_started() -> None:
    wish = ReplicaWish(5, may_shrink=True, lasts=30.0)
    made = plan(wish, serving=NAMES, starting=[], leaving=["local-3"])
    assert made == ReplicaPlan(start=1, take_back=("local-3",))


def test_a_wish_that_may_take_none_away_does_not() -> None:
    wish = ReplicaWish(1, may_shrink=False, lasts=30.0)
    assert plan(wish, serving=NAMES, starting=[], leaving=[]) == ReplicaPlan()


def test_people_read_how_many_are_wanted_and_why() -> None:
    for desired, said in ((1, "1 replica"), (0, "0 replicas")):
        wish = ReplicaWish(desired, may_shrink=True, lasts=1.0, why="a")
        assert wish.sentence == f"the hint is {said} (a)"


# --- the steps ------------------------------------------------------------------------------------


def told(desired: int, *codes: str, confidence: str = "high") -> dict[str, Any]:
    reasons = [{"code": code, "text": f"because of {code}"} for code in codes or ("demand",)]
    certain = {"confidence": confidence, "lasts": 30.0, "reasons": reasons}
    return {"pool": "default", "desired": desired, **certain}


class Tritons:
    """Tritons that answer when a test says so; the first `count` do from the start."""

    def __init__(self, count: int) -> None:
        self._answers = {f"local-{number}": True for number in range(count)}
        self.failures: dict[str, TritonDidNotStart] = {}
        self.conditions: dict[str, ProcessCondition] = dict.fromkeys(
            self._answers, ProcessCondition(SupervisedState.RUNNING)
        )
        self.done: list[str] = []
        self._news = asyncio.Event()

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return tuple(replica(name) for name in self._answers)

    @property
    def answering(self) -> tuple[Replica, ...]:
        return tuple(replica(name) for name, answers in self._answers.items() if answers)

    def add(self) -> str:
        name = next(
            f"local-{number}" for number in range(99) if f"local-{number}" not in self._answers
        )
        self._answers[name] = False
        self.conditions[name] = ProcessCondition(SupervisedState.STARTING)
        self.done.append(f"start {name}")
        return name

    async def remove(self, name: str) -> None:
        self.done.append(f"stop {name}")
        del self._answers[name], self.conditions[name]
        self.failures.pop(name, None)

    async def news(self) -> None:
        await self._news.wait()

    def answer(self, name: str) -> None:
        self._answers[name] = True
        self.conditions[name] = ProcessCondition(SupervisedState.RUNNING)
        self._tell()

    def fail(self, name: str) -> None:
        self.failures[name] = TritonDidNotStart(name, "exit status 1", ())
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Control:
    """A control plane that gives hints as a test scripts them, and lets go of replicas so, too."""

    def __init__(self, tritons: Tritons) -> None:
        self._done = tritons.done
        self._hints: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.busy: dict[str, float | None] = {}
        self.members: list[str] = []
        self.is_away = False

    def hint(self, desired: int, *codes: str, confidence: str = "high") -> None:
        self._hints.put_nowait(told(desired, *codes, confidence=confidence))

    async def hints(self, after: int) -> tuple[int, list[dict[str, Any]]]:
        one = await self._hints.get()
        return after + 1, [{**one, "pool": "other", "desired": 99}, one]

    async def become(
        self,
        replicas: Collection[Replica],
        starting: Mapping[str, int],
        *,
        leaving: Collection[str],
        within: float,
    ) -> Mapping[str, float | None]:
        await asyncio.sleep(0)
        if self.is_away:
            raise ConnectionRefusedError
        self.members = [one.name for one in replicas]
        self._done.append(f"notified {' '.join(self.members)} +{starting['default']}")
        return {name: count for name, count in self.busy.items() if name in leaving}


class Scene:
    """An autoscaler with so many Tritons that answer."""

    def __init__(self, count: int, patience: float) -> None:
        self.clock = Clock()
        self.tritons = Tritons(count)
        self.control = Control(self.tritons)
        self.said: list[str] = []
        self.autoscaler = Autoscaler(
            self.tritons,
            self.control,
            say=self.said.append,
            within=120.0,
            patience=patience,
            clock=self.clock,
        )

    async def did(self, *expected: str) -> None:
        """Wait until exactly this was done since the last look."""
        try:
            await until(lambda: len(self.tritons.done) >= len(expected), within=PATIENCE)
            for _ in range(50):  # nothing else follows
                await asyncio.sleep(0)
        finally:
            assert self.tritons.done == list(expected)
        self.tritons.done.clear()


@contextlib.asynccontextmanager
async def autoscaling(count: int, *, patience: float = math.inf) -> AsyncIterator[Scene]:
    scene = Scene(count, patience)
    running = asyncio.create_task(scene.autoscaler.run())
    try:
        yield scene
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def starting() -> AsyncIterator[Scene]:
    async with autoscaling(1) as scene:
        scene.control.hint(2)
        await scene.did("notified local-0 +0", "start local-1", "notified local-0 +1")
        yield scene


@in_loop
async def test_what_is_wanted_is_started_and_told_once_it_answers() -> None:
    async with autoscaling(1) as scene:
        await scene.did("notified local-0 +0")
        scene.control.hint(3)
        await scene.did("start local-1", "start local-2", "notified local-0 +2")
        scene.tritons.answer("local-2")
        await scene.did("notified local-0 local-2 +1")
        scene.control.hint(3)
        await scene.did()
        scene.tritons.answer("local-1")
        await scene.did("notified local-0 local-1 local-2 +0")
        assert scene.said[0] == "starting local-1: the hint is 3 replicas (because of demand)"


@in_loop
async def test_what_is_not_wanted_is_stopped_after_the_control_plane_has_let_go_of_it() -> None:
    async with autoscaling(3) as scene:
        scene.control.busy = {"local-2": 4.0}
        scene.control.hint(1, "falling")
        await until(lambda: scene.control.members == ["local-0"], within=PATIENCE)
        await until(lambda: "stop local-1" in scene.tritons.done, within=PATIENCE)
        assert "stop local-2" not in scene.tritons.done
        scene.control.busy = {}
        await until(lambda: "stop local-2" in scene.tritons.done, within=PATIENCE)
        first = scene.tritons.done.index("stop local-1")
        assert scene.tritons.done[first - 1] == "notified local-0 +0"


@in_loop
async def test_one_that_waits_for_its_last_calls_is_taken_back_before_another_is_started() -> None:
    async with autoscaling(2) as scene:
        scene.control.busy = {"local-1": 1.0}
        scene.control.hint(1, "falling")
        await until(lambda: scene.control.members == ["local-0"], within=PATIENCE)
        scene.control.hint(3)
        await until(lambda: scene.control.members == ["local-0", "local-1"], within=PATIENCE)
        assert "start local-2" in scene.tritons.done
        assert "stop local-1" not in scene.tritons.done


@in_loop
async def test_calls_that_never_end_are_waited_for_only_so_long() -> None:
    async with autoscaling(2, patience=300.0) as scene:
        scene.control.busy = {"local-1": None}
        scene.control.hint(1, "falling")
        await until(lambda: scene.control.members == ["local-0"], within=PATIENCE)
        scene.clock.now += 299
        await until(lambda: len(scene.tritons.done) > 5, within=PATIENCE)
        assert "stop local-1" not in scene.tritons.done
        scene.clock.now += 1
        await until(lambda: "stop local-1" in scene.tritons.done, within=PATIENCE)


@in_loop
async def test_a_hint_that_is_not_sure_takes_none_away_unless_people_allow_fewer() -> None:
    async with autoscaling(2) as scene:
        await scene.did("notified local-0 local-1 +0")
        scene.control.hint(1, "restarted", confidence="low")
        await scene.did()
        scene.control.hint(3, "least", confidence="low")
        await scene.did("start local-2", "notified local-0 local-1 +1")
        scene.control.hint(1, "restarted", "most", confidence="low")
        await scene.did("stop local-2", "notified local-0 +0", "stop local-1")


@in_loop
async def test_a_hint_that_is_too_old_is_not_followed() -> None:
    async with starting() as scene:
        scene.clock.now += 31
        scene.tritons.fail("local-1")
        await scene.did("stop local-1", "notified local-0 +0")
        scene.clock.now += RETRY + 1
        scene.tritons.answer("local-0")  # news, and no hint
        await scene.did()


@in_loop
async def test_after_a_start_that_failed_the_next_is_tried_later() -> None:
    async with starting() as scene:
        scene.tritons.fail("local-1")
        await scene.did("stop local-1", "notified local-0 +0")
        scene.control.hint(2)
        await scene.did()
        scene.clock.now += RETRY + 1
        scene.control.hint(2)
        await scene.did("start local-1", "notified local-0 +1")


@in_loop
async def test_a_start_that_comes_to_no_end_has_failed() -> None:
    async with starting() as scene:
        for later, did in ((120, ()), (1, ("stop local-1", "notified local-0 +0"))):
            scene.clock.now += later
            scene.control.hint(2)
            await scene.did(*did)


@in_loop
async def test_a_control_plane_that_was_away_is_told_again() -> None:
    async with autoscaling(2) as scene:
        await scene.did("notified local-0 local-1 +0")
        scene.control.is_away = True
        scene.control.hint(1, "falling")
        await scene.did()
        assert [one.name for one in scene.autoscaler.members] == ["local-0"]
        scene.control.is_away = False
        scene.control.hint(1, "falling")
        await scene.did("notified local-0 +0", "stop local-1")
