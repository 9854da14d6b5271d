"""The loop: rounds, those that come at once because somebody waits, and hints as numbers."""

import asyncio
import math
from collections.abc import Iterable

import pytest
from builders import Clock, replica
from control.scaling.watched_pools import Scene
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from serve.capacity.scaling.policy import TICK
from serve.capacity.scaling.signals import (
    Bounds,
    Code,
    ModelSignal,
    PoolSignal,
    Reason,
    ReplicaHint,
)
from serve.control.batching.rounds import PAUSE
from serve.control.scaling.board import HintBoard
from serve.control.scaling.meters import HintMeters
from serve.control.scaling.scaler import Scaler
from serve.control.scaling.signals import Allowed
from serve.control.scaling.told import PoolNumbers


@pytest.fixture
def asleep() -> Scene:
    """A pool that is scaled to zero: without replicas and calls it has always been idle."""
    scene = Scene()
    for name in ("a", "b"):
        scene.fleet.remove(name)
    scene.allowed = {"default": Allowed(Bounds(1, 4, to_zero=True))}
    scene.look()
    assert (scene.hint().signal.idle, scene.hint().hint.desired) == (math.inf, 0)
    return scene


def test_the_first_call_wakes_a_pool_at_once(asleep: Scene) -> None:
    asleep.scaler.wake(["nobody-has-this"])
    assert asleep.hint().hint.desired == 0
    number = asleep.board.number
    for _ in range(2):  # the second is of the same wait, and decides nothing new
        asleep.scaler.wake(["m"])
        assert asleep.board.number == number + 1
    assert (asleep.hint().hint.desired, asleep.hint().hint.codes) == (1, {Code.WAKING})
    assert asleep.model().waiting == 1.0


def test_who_waits_is_remembered_until_the_replica_is_there(asleep: Scene) -> None:
    asleep.scaler.wake(["m"])
    asleep.starting = {"default": 1}
    asleep.look()
    assert asleep.hint().hint.desired == 1
    asleep.starting = {}
    asleep.fleet.join(replica("c"), wished_at=asleep.clock())
    asleep.fleet.joining.add("c")
    asleep.look()
    assert (asleep.hint().hint.desired, asleep.hint().hint.starting) == (1, 1)
    asleep.fleet.saw("c", {"m": (1,)})
    asleep.fleet.joining.discard("c")
    asleep.look()
    assert (asleep.hint().hint.desired, asleep.hint().hint.ready) == (1, 1)
    assert not any(one.waiting for one in asleep.hint().signal.models)


def test_a_pool_wakes_even_while_the_gateway_cannot_be_read(asleep: Scene) -> None:
    asleep.gateway = None
    for _ in range(10):
        asleep.look()
    asleep.scaler.wake(["m"])
    assert asleep.hint().hint.desired == 1


def test_what_is_allowed_now_bounds_the_hint() -> None:
    scene = Scene()
    scene.settle()
    scene.allowed = {"default": Allowed(Bounds(5, 9), "mon-fri 08:00-18:00 Europe/Berlin")}
    scene.look()
    told = scene.hint()
    assert (told.hint.desired, told.at) == (5, scene.wall())
    assert (told.bounds.least, told.schedule) == (5, "mon-fri 08:00-18:00 Europe/Berlin")
    scene.allowed = {"other": Allowed(Bounds())}  # nothing is left of the pool
    scene.fleet.remove("a")
    scene.fleet.remove("b")
    scene.look()
    assert [told.pool for told in scene.board.all()] == ["other"]


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


# --- hints as numbers ----------------------------------------------------------------------------


class Metered(Collector):
    """One pool whose hint is told at 1000 s and lasts for 30 s."""

    def __init__(self, demand: float = 2.5) -> None:
        self.wall, board = Clock(1000.0), HintBoard()
        hint = ReplicaHint(
            *("p", 4, 2, 1, demand, (Reason(Code.DEMAND, "it comes"), Reason(Code.MOST, "4"))),
            needs=(("m", demand),),
        )
        models = (
            ModelSignal("m", 10.0, 10.0, 0.0, 25.0, 2),
            ModelSignal("n", 0.0, 0.0, 0.0, None, 2),
        )
        board.put([PoolNumbers(hint, PoolSignal("p", 0.0, 2, 1, models), Bounds(1, 4), 1000.0)])
        self.meters = HintMeters(board, wall=self.wall)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        return self.meters.collect()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"servegate_{name}", {"pool": "p", **labels})


def test_each_pool_and_each_of_its_models_is_told() -> None:
    scene = Metered()
    assert (scene.value("desired_replicas"), scene.value("ready_replicas")) == (4.0, 2.0)
    assert scene.value("pool_demand", model="m") == 2.5
    assert scene.value("replica_capacity", model="m") == 25.0
    assert scene.value("hint_reason", code="demand") == scene.value("hint_reason", code="most") == 1
    scene.wall.now += 30.0
    assert scene.value("desired_replicas") == 4.0
    scene.wall.now += 1.0  # it is too old to be followed
    assert scene.value("desired_replicas") is None


def test_what_nobody_knows_is_no_number() -> None:
    scene = Metered(demand=float("nan"))
    assert scene.value("pool_demand", model="m") is None
    assert scene.value("replica_capacity", model="n") is None
    assert scene.value("hint_reason", code="stale") is None
