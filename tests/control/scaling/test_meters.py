"""Hints as numbers."""

from builders import Clock
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from serve.capacity.scaling.signals import (
    Bounds,
    Code,
    ModelSignal,
    PoolSignal,
    Reason,
    ReplicaHint,
)
from serve.control.scaling.board import HintBoard
from serve.control.scaling.meters import HintMeters
from serve.control.scaling.told import PoolNumbers


class Scene(Collector):
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

    def collect(self):
        return self.meters.collect()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"servegate_{name}", {"pool": "p", **labels})


def test_each_pool_and_each_of_its_models_is_told() -> None:
    scene = Scene()
    assert (scene.value("desired_replicas"), scene.value("ready_replicas")) == (4.0, 2.0)
    assert scene.value("pool_demand", model="m") == 2.5
    assert scene.value("replica_capacity", model="m") == 25.0
    assert scene.value("hint_reason", code="demand") == scene.value("hint_reason", code="most") == 1


def test_what_nobody_knows_is_no_number() -> None:
    scene = Scene(demand=float("nan"))
    assert scene.value("pool_demand", model="m") is None
    assert scene.value("replica_capacity", model="n") is None
    assert scene.value("hint_reason", code="stale") is None


def test_a_hint_that_is_too_old_to_be_followed_is_not_told() -> None:
    scene = Scene()
    scene.wall.now += 30.0
    assert scene.value("desired_replicas") == 4.0
    scene.wall.now += 1.0
    assert scene.value("desired_replicas") is None
