"""The loop: rounds, and those that come at once because somebody waits."""

import asyncio

import pytest
from builders import replica
from control.scaling.watched_pools import Scene

from serve.capacity.scaling.policy import TICK
from serve.capacity.scaling.signals import Bounds, Code
from serve.control.batching.rounds import PAUSE
from serve.control.scaling.scaler import Scaler
from serve.control.scaling.signals import Allowed


def asleep() -> Scene:
    """A pool that has been scaled to zero."""
    scene = Scene()
    for name in ("a", "b"):
        scene.fleet.remove(name)
    scene.allowed = {"default": Allowed(Bounds(1, 4, to_zero=True))}
    scene.look()
    assert scene.hint().hint.desired == 0
    return scene


def test_the_first_call_wakes_a_pool_at_once() -> None:
    scene = asleep()
    scene.scaler.wake(["nobody-has-this"])
    assert scene.hint().hint.desired == 0
    number = scene.board.number
    for _ in range(2):  # the second is of the same wait, and decides nothing new
        scene.scaler.wake(["m"])
        assert scene.board.number == number + 1
    assert (scene.hint().hint.desired, scene.hint().hint.codes) == (1, {Code.WAKING})
    assert scene.model().waiting == 1.0


def test_who_waits_is_remembered_until_the_replica_is_there() -> None:
    scene = asleep()
    scene.scaler.wake(["m"])
    scene.starting = {"default": 1}
    scene.look()
    assert scene.hint().hint.desired == 1
    scene.starting = {}
    scene.fleet.join(replica("c"), wished_at=scene.clock())
    scene.fleet.joining.add("c")
    scene.look()
    assert (scene.hint().hint.desired, scene.hint().hint.starting) == (1, 1)
    scene.fleet.saw("c", {"m": (1,)})
    scene.fleet.joining.discard("c")
    scene.look()
    assert (scene.hint().hint.desired, scene.hint().hint.ready) == (1, 1)
    assert not any(one.waiting for one in scene.hint().signal.models)


def test_a_pool_wakes_even_while_the_gateway_cannot_be_read() -> None:
    scene = asleep()
    scene.gateway = None
    for _ in range(10):
        scene.look()
    scene.scaler.wake(["m"])
    assert scene.hint().hint.desired == 1


def test_a_pool_of_which_nothing_is_left_has_no_hint_any_more() -> None:
    scene = asleep()
    scene.allowed = {"other": Allowed(Bounds())}
    scene.look()
    assert [told.pool for told in scene.board.all()] == ["other"]


def test_what_is_allowed_now_bounds_the_hint() -> None:
    scene = Scene()
    scene.settle()
    scene.allowed = {"default": Allowed(Bounds(5, 9), "mon-fri 08:00-18:00 Europe/Berlin")}
    scene.look()
    told = scene.hint()
    assert (told.hint.desired, told.at) == (5, scene.wall())
    assert (told.bounds.least, told.schedule) == (5, "mon-fri 08:00-18:00 Europe/Berlin")


def test_gpus_are_told_by_their_replica() -> None:
    scene = Scene()
    gpu = {"source": "triton", "utilization": 0.25}
    silent = {"source": "dcgm", "utilization": None}  # a slice of a GPU does not tell it
    scene.gpus = {"a": {"GPU-1": gpu, "MIG-1": silent}, "gone": {"GPU-2": gpu}}
    scene.look()
    assert dict(scene.hint().gpus) == {"a/GPU-1": gpu, "a/MIG-1": silent}
    assert scene.hint().signal.utilization == 0.25


class Failing(Scaler):
    """Its rounds go wrong, each after some seconds."""

    def __init__(self, scene: Scene, *takes: float) -> None:
        super().__init__(
            *(None, None, None, scene.board),  # type: ignore[arg-type]
            lasting=scene.lasting,
            allowed=dict,
            gpus=dict,  # type: ignore[arg-type]
            clock=scene.clock,
            wall=scene.wall,
            sleep=self.slept,
        )
        self.scene, self.takes, self.slept_for = scene, list(takes), list[float]()

    async def round(self) -> None:
        self.scene.clock.now += self.takes.pop(0)
        raise RuntimeError("nobody is there")

    async def slept(self, seconds: float) -> None:
        self.slept_for.append(seconds)
        if not self.takes:
            raise asyncio.CancelledError


def test_rounds_go_on_whatever_goes_wrong_with_one(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing(Scene(), 0.0, 2.0, 30.0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(failing.run())
    assert failing.slept_for == [TICK, TICK - 2.0, PAUSE]
    assert "hints could not be calculated in this round" in caplog.text
