"""How long it takes from the wish for a replica until it can be called."""

import pytest
from builders import Clock, replica

from serve.control.fleet import Fleet
from serve.control.scaling.signals import USUAL, ColdStarts


class Scene:
    """Replica `a` was there from the start."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fleet = Fleet((replica("a"),), clock=self.clock)
        self.starts = ColdStarts(self.fleet, clock=self.clock)

    def start(
        self, name: str, seconds: float, *, wished: bool = True, pool: str = "default"
    ) -> None:
        self.fleet.join(replica(name, pool=pool), self.clock() if wished else None)
        self.starts.look(["a"])
        self.clock.now += seconds
        self.starts.look(["a", name])
        self.clock.now += 1000.0
        self.starts.look(["a", name])


def test_the_usual_holds_until_one_was_seen_that_was_wished_for() -> None:
    scene = Scene()
    scene.starts.look(["a"])
    assert scene.starts.of("default") == USUAL
    scene.start("nobody's", 50.0, wished=False)
    assert scene.starts.of("default") == USUAL
    scene.start("b", 20.0)
    assert scene.starts.of("default") == 20.0


def test_the_slowest_tenth_is_passed_over() -> None:
    scene = Scene()
    for number in range(1, 11):
        scene.start(f"r{number}", float(number))
    assert scene.starts.of("default") == 9.0


def test_pools_are_told_apart() -> None:
    scene = Scene()
    scene.start("b", 20.0)
    scene.start("c", 200.0, pool="large")
    assert (scene.starts.of("default"), scene.starts.of("large")) == (20.0, 200.0)


def test_old_starts_are_forgotten() -> None:
    scene = Scene()
    scene.start("slow", 500.0)
    for number in range(20):
        scene.start(f"r{number}", 10.0)
    assert scene.starts.of("default") == 10.0


def test_a_replica_that_is_lost_and_comes_back_has_not_started_again() -> None:
    scene = Scene()
    scene.start("b", 20.0)
    scene.starts.look(["a"])
    scene.clock.now += 900.0
    scene.starts.look(["a", "b"])
    assert scene.starts.of("default") == 20.0


def test_one_that_joins_again_under_its_name_has() -> None:
    scene = Scene()
    scene.start("b", 20.0)
    scene.fleet.remove("b")
    scene.starts.look(["a"])
    scene.start("b", 40.0)
    assert scene.starts.of("default") == pytest.approx(40.0)
