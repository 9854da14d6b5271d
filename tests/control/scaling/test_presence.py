"""Which replicas a pool has, how many are to come, and how long that takes."""

from collections.abc import Collection

import pytest
from builders import Clock, replica

from serve.control.fleet import Fleet
from serve.control.scaling.signals import USUAL, ColdStarts, Present, present, ready_of


class Scene:
    """Three replicas, of which nothing was seen yet."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.began = self.clock()
        replicas = (replica("a"), replica("b"), replica("c", pool="large"))
        self.fleet = Fleet(replicas, clock=self.clock)

    def see(self, *names: str) -> None:
        for name in names:
            self.fleet.saw(name, {})

    def look(
        self, cold_start: float = 60.0, sleepers: Collection[str] = (), **wished: int
    ) -> dict[str, Present]:
        return present(
            self.fleet,
            ["default", "large", "empty"],
            ready_of(self.fleet),
            now=self.clock(),
            began=self.began,
            wished=wished,
            cold_starts={"default": cold_start},
            sleepers=sleepers,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_was_not_seen_yet_is_to_come_for_a_while(scene: Scene) -> None:
    nobody = Present((), 0)
    assert scene.look() == {"default": Present((), 2), "large": Present((), 1), "empty": nobody}
    scene.fleet.saw("a", {})
    scene.clock.now += 200.0
    assert scene.look()["default"] == Present(("a",), 0)


def test_a_pool_of_which_nothing_is_seen_any_more_is_not_given_up_unless_it_may_have_none(
    scene: Scene,
) -> None:
    scene.see("a", "b")
    for name in ("a", "b"):
        scene.fleet.lost(name, "it does not answer")
    scene.clock.now += 5000.0
    assert scene.look()["default"] == Present((), 2)
    assert scene.look(sleepers=["default"])["default"] == Present((), 0)


def test_what_answers_is_ready_unless_it_lacks_what_it_came_for(scene: Scene) -> None:
    scene.see("a", "b", "c")
    scene.fleet.joining.add("b")
    found = scene.look()
    assert (found["default"], found["large"]) == (Present(("a",), 1), Present(("c",), 0))


def test_what_is_lost_is_expected_back_for_as_long_as_starts_take(scene: Scene) -> None:
    scene.see("a", "b")
    scene.clock.now += 500.0
    scene.fleet.lost("b", "it does not answer")
    scene.clock.now += 300.0
    assert scene.look(cold_start=60.0)["default"] == Present(("a",), 0)
    assert scene.look(cold_start=200.0)["default"] == Present(("a",), 1)


def test_wishes_count_until_they_join_and_what_is_about_to_leave_is_not_there(scene: Scene) -> None:
    scene.see("a", "b")
    found = scene.look(default=2, empty=1)
    assert (found["default"], found["empty"]) == (Present(("a", "b"), 2), Present((), 1))
    scene.fleet.retire("b")
    assert scene.look()["default"] == Present(("a",), 0)


# --- how long it takes from the wish for a replica until it can be called ------------------------


class Starting:
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


@pytest.fixture
def starting() -> Starting:
    return Starting()


def test_the_usual_holds_until_one_was_seen_that_was_wished_for(starting: Starting) -> None:
    starting.starts.look(["a"])
    assert starting.starts.of("default") == USUAL
    starting.start("nobody's", 50.0, wished=False)
    assert starting.starts.of("default") == USUAL
    starting.start("b", 20.0)
    assert starting.starts.of("default") == 20.0


def test_pools_are_told_apart(starting: Starting) -> None:
    starting.start("b", 20.0)
    starting.start("c", 200.0, pool="large")
    assert (starting.starts.of("default"), starting.starts.of("large")) == (20.0, 200.0)


def test_the_slowest_tenth_is_passed_over_and_old_starts_are_forgotten(starting: Starting) -> None:
    for number in range(1, 11):
        starting.start(f"first-{number}", float(number))
    assert starting.starts.of("default") == 9.0
    starting.start("slow", 500.0)
    for number in range(20):
        starting.start(f"r{number}", 10.0)
    assert starting.starts.of("default") == 10.0


def test_a_replica_that_is_lost_and_comes_back_has_not_started_again_but_one_that_joins_has(
    starting: Starting,
) -> None:
    starting.start("b", 20.0)
    starting.starts.look(["a"])
    starting.clock.now += 900.0
    starting.starts.look(["a", "b"])
    assert starting.starts.of("default") == 20.0
    starting.fleet.remove("b")
    starting.starts.look(["a"])
    starting.start("b", 40.0)
    assert starting.starts.of("default") == pytest.approx(40.0)
