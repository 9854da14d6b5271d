"""What a hint asks for, in words."""

import pytest

from serve.capacity.scaling.texts import asked


@pytest.mark.parametrize(
    ("desired", "ready", "starting", "words"),
    [
        (3, 2, 0, "3 replicas, 1 more than now"),
        (3, 1, 0, "3 replicas, 2 more than now"),
        (1, 0, 0, "1 replica, 1 more than now"),
        (1, 3, 0, "1 replica, 2 fewer than now"),
        (0, 1, 0, "no replicas, 1 fewer than now"),
        (2, 2, 0, "2 replicas"),
        (3, 2, 1, "3 replicas, 1 of them starting"),
        (4, 2, 2, "4 replicas, 2 of them starting"),
        (0, 0, 0, "no replicas, scaled to zero"),
    ],
)
def test_the_wish_is_held_against_what_is_there(
    desired: int, ready: int, starting: int, words: str
) -> None:
    assert asked(desired, ready, starting) == words
