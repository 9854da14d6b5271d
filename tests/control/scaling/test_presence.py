"""Which replicas a pool has, which can be called, and how many are to come."""

from collections.abc import Collection

from builders import Clock, replica

from serve.control.fleet import Fleet
from serve.control.scaling.signals import Present, present, ready_of


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


def test_what_was_not_seen_yet_is_to_come_for_a_while() -> None:
    scene = Scene()
    nobody = Present((), 0)
    assert scene.look() == {"default": Present((), 2), "large": Present((), 1), "empty": nobody}
    scene.fleet.saw("a", {})
    scene.clock.now += 200.0
    assert scene.look()["default"] == Present(("a",), 0)


def test_a_pool_of_which_nothing_is_seen_any_more_is_not_given_up_unless_it_may_have_none() -> None:
    scene = Scene()
    scene.see("a", "b")
    for name in ("a", "b"):
        scene.fleet.lost(name, "it does not answer")
    scene.clock.now += 5000.0
    assert scene.look()["default"] == Present((), 2)
    assert scene.look(sleepers=["default"])["default"] == Present((), 0)


def test_what_answers_is_ready_unless_it_lacks_what_it_came_for() -> None:
    scene = Scene()
    scene.see("a", "b", "c")
    scene.fleet.joining.add("b")
    found = scene.look()
    assert (found["default"], found["large"]) == (Present(("a",), 1), Present(("c",), 0))


def test_what_is_lost_is_expected_back_for_as_long_as_starts_take() -> None:
    scene = Scene()
    scene.see("a", "b")
    scene.clock.now += 500.0
    scene.fleet.lost("b", "it does not answer")
    scene.clock.now += 300.0
    assert scene.look(cold_start=60.0)["default"] == Present(("a",), 0)
    assert scene.look(cold_start=200.0)["default"] == Present(("a",), 1)


def test_what_is_about_to_leave_is_not_there() -> None:
    scene = Scene()
    scene.see("a", "b")
    scene.fleet.retire("b")
    assert scene.look()["default"] == Present(("a",), 0)


def test_wishes_count_until_they_join() -> None:
    scene = Scene()
    scene.see("a", "b")
    found = scene.look(default=2, empty=1)
    assert (found["default"], found["empty"]) == (Present(("a", "b"), 2), Present((), 1))
