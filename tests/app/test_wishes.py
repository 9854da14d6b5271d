"""The next step towards as many Tritons as a hint asks for: who goes first, and who stays."""

import pytest

from serve.app.local_autoscaler import ReplicaPlan, ReplicaWish, plan

NAMES = ("local-0", "local-1", "local-2")


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        (5, ReplicaPlan(start=1)),
        (4, ReplicaPlan()),
        (3, ReplicaPlan(stop=("local-3",))),
        (2, ReplicaPlan(give_away=("local-1",), stop=("local-3",))),
        (1, ReplicaPlan(give_away=("local-1", "local-2"), stop=("local-3",))),
        (0, ReplicaPlan(give_away=("local-1", "local-2", "local-0"), stop=("local-3",))),
    ],
)
def test_those_that_start_go_first_then_what_does_not_run_then_the_newest(
    desired: int, expected: ReplicaPlan
) -> None:
    wish = ReplicaWish(desired, may_shrink=True, lasts=30.0)
    made = plan(wish, serving=NAMES, starting=["local-3"], leaving=[], broken=["local-1"])
    assert made == expected


def test_those_on_their_way_out_come_back_before_any_is_started() -> None:
    wish = ReplicaWish(5, may_shrink=True, lasts=30.0)
    made = plan(wish, serving=NAMES, starting=[], leaving=["local-3"])
    assert made == ReplicaPlan(start=1, take_back=("local-3",))


def test_a_wish_that_may_take_none_away_does_not() -> None:
    wish = ReplicaWish(1, may_shrink=False, lasts=30.0)
    assert plan(wish, serving=NAMES, starting=[], leaving=[]) == ReplicaPlan()


def test_people_read_how_many_are_wanted_and_why() -> None:
    assert (
        ReplicaWish(1, may_shrink=True, lasts=1.0, why="a").sentence == "the hint is 1 replica (a)"
    )
    assert (
        ReplicaWish(0, may_shrink=True, lasts=1.0, why="b").sentence == "the hint is 0 replicas (b)"
    )
