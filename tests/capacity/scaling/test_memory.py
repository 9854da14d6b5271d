"""The memory of a pool: what pays is kept, what does not is let go."""

import pytest

from serve.capacity.scaling.policy import PRICE, REMEMBERED, SLOT, DemandMemory


def remembered(*needs: tuple[float, float], begin: float = 0.0) -> DemandMemory:
    """Needs, each for so many seconds."""
    memory, at = DemandMemory(), begin
    for need, seconds in needs:
        for _ in range(round(seconds / 5)):
            memory = memory.noted(at, need)
            at += 5.0
    return memory


def test_a_slot_has_the_most_of_its_time() -> None:
    assert remembered((1.0, 10.0), (3.0, 5.0), (2.0, 15.0)).needs == (3.0, 2.0)


def test_an_hour_is_remembered() -> None:
    memory = remembered((5.0, 60.0), (1.0, REMEMBERED))
    assert memory.seconds == REMEMBERED
    assert memory.most(REMEMBERED) == 1.0


def test_a_time_in_which_nobody_looked_was_like_what_is_seen_after_it() -> None:
    memory = DemandMemory().noted(0.0, 4.0).noted(50.0, 2.0)
    assert memory.needs == (4.0, 2.0, 2.0, 2.0)
    assert memory.noted(50.0 + 2 * REMEMBERED, 1.0).needs == (1.0,)


def test_the_most_of_the_last_seconds() -> None:
    memory = remembered((9.0, 60.0), (2.0, 60.0))
    assert memory.most(45.0) == 2.0
    assert memory.most(60.0) == 9.0
    assert DemandMemory().most(60.0) == 0.0


@pytest.mark.parametrize(("passed", "kept"), [(-SLOT, 8), (2 * SLOT, 2)])
def test_what_came_once_is_kept_for_as_long_as_a_start_is_worth(passed: float, kept: int) -> None:
    start = 60.0
    memory = remembered((2.0, 300.0), (7.5, 300.0), (2.0, start / PRICE - 300.0 + passed))
    assert memory.kept(2, start) == kept


def test_what_comes_back_again_and_again_is_kept_longer() -> None:
    often = remembered(*[(2.0, 300.0), (8.0, 120.0)] * 5, (2.0, 1200.0))
    once = remembered((2.0, 1980.0), (8.0, 120.0), (2.0, 1200.0))
    assert (often.kept(2, 30.0), once.kept(2, 30.0)) == (8, 2)


def test_what_starts_at_once_need_not_be_kept() -> None:
    assert remembered((9.0, 60.0), (1.0, 60.0)).kept(1, 0.0) == 1


def test_a_peak_that_was_shorter_than_a_start_saves_no_more_than_it_lasted() -> None:
    memory = remembered((1.0, 300.0), (9.0, SLOT), (1.0, 600.0))
    assert memory.kept(1, 60.0) == 1
