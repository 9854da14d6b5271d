"""Staffing: some to spare, by the root in small pools and by a share in large ones."""

import pytest

from serve.capacity.scaling.policy import UP, borne, enough_for


def test_nothing_needs_nobody() -> None:
    assert (enough_for(0.0), borne(0)) == (0, 0.0)


def test_small_pools_have_a_larger_share_to_spare() -> None:
    assert 0.6 < borne(1) < 0.7
    assert 0.7 < borne(2) / 2 < 0.8
    assert borne(100) / 100 == UP


@pytest.mark.parametrize("replicas", [1, 2, 3, 10, 16, 17, 100, 5000])
def test_so_many_are_enough_for_what_they_bear_and_for_no_more(replicas: int) -> None:
    assert enough_for(borne(replicas)) == replicas
    assert enough_for(borne(replicas) + 1e-6) == replicas + 1
