"""What a hint asks for, in words."""

import pytest

from serve.capacity.scaling.wording import asked


@pytest.mark.parametrize(
    ("desired", "ready", "starting", "words"),
    [
        (3, 2, 0, "3 replicas, 1 more than there are"),
        (3, 1, 0, "3 replicas, 2 more than there is"),
        (1, 0, 0, "1 replica, 1 more than there are"),
        (1, 3, 0, "1 replica, 2 fewer than there are"),
        (0, 1, 0, "no replica, 1 fewer than there is"),
        (2, 2, 0, "2 replicas"),
        (3, 2, 1, "3 replicas, of which 1 still starts"),
        (4, 2, 2, "4 replicas, of which 2 still start"),
        (0, 0, 0, "no replica: the pool is asleep"),
    ],
)
def test_the_wish_is_held_against_what_is_there(
    desired: int, ready: int, starting: int, words: str
) -> None:
    assert asked(desired, ready, starting) == words
