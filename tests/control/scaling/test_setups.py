"""How what is called is run, as a Triton of its pool tells."""

import asyncio

from builders import Clock, replica

from serve.control.scaling.setups import SetUp, Setups
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.config import Configuration, parse

TEXT = "max_batch_size: 16\ndynamic_batching { }\ninstance_group [{ kind: KIND_CPU count: 3 }]\n"
WHERE = ("p", "m")


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.asked = 0
        self.tells: str | None = TEXT
        self.decided: dict[str, Configuration] = {}
        self.setups = Setups(self.ask, decided=lambda: self.decided, clock=self.clock)

    async def ask(self, one: Replica, name: str) -> Configuration:
        self.asked += 1
        if self.tells is None:
            raise Unavailable("it does not answer")
        return parse(self.tells)

    def learn(self, after: float = 0.0) -> SetUp | None:
        self.clock.now += after
        asyncio.run(self.setups.learn({WHERE: replica("a")}))
        return self.setups.of(*WHERE)


def test_a_triton_is_asked_once_a_minute() -> None:
    scene = Scene()
    assert scene.learn() == SetUp(3, 16, batches=True)
    scene.learn(after=30.0)
    assert scene.asked == 1
    scene.tells = TEXT.replace("16", "8")
    assert scene.learn(after=31.0) == SetUp(3, 8, batches=True)


def test_where_it_does_not_tell_what_was_decided_holds() -> None:
    scene = Scene()
    scene.tells = None
    assert scene.learn() is None
    scene.decided = {"m": parse("max_batch_size: 4\n")}
    assert scene.learn(after=60.0) == SetUp(1, 4)


def test_what_it_told_before_stays_when_nobody_tells_any_more() -> None:
    scene = Scene()
    scene.learn()
    scene.tells = None
    assert scene.learn(after=60.0) == SetUp(3, 16, batches=True)


def test_the_parts_of_an_ensemble_are_known() -> None:
    scene = Scene()
    scene.tells = (
        'platform: "ensemble"\nensemble_scheduling { step { model_name: "x" model_version: -1 } '
        'step { model_name: "y" model_version: 4 } }\n'
    )
    found = scene.learn()
    assert found is not None
    assert found.parts == (("x", -1), ("y", 4))


def test_what_nobody_holds_any_more_is_remembered_for_two_hours() -> None:
    scene = Scene()
    scene.learn()
    for after, known in ((7000.0, True), (300.0, False)):
        scene.clock.now += after
        asyncio.run(scene.setups.learn({}))
        assert (scene.setups.of(*WHERE) is not None) is known


def test_no_more_than_fifty_are_asked_for_in_a_round() -> None:
    scene = Scene()
    holders = {("p", f"m{number}"): replica("a") for number in range(70)}
    for asked in (50, 70, 70):
        asyncio.run(scene.setups.learn(holders))
        assert scene.asked == asked
