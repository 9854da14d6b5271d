"""What trials make of the belief in a setup's limit."""

import numpy as np
import pytest

from serve.capacity.knowledge import SHARES, SeenTrial, believed

CURVE = np.interp(SHARES, (0.4, 1.0, 1.3), (-1.2, 0.0, 1.0))  # log(latency ÷ limit)
MISSED = 0.7  # of the same


def limit(*seen: SeenTrial) -> float:
    """In shares of the prediction."""
    return believed(1.0, 0.0, 0.3, CURVE, seen).rate


def test_without_trials_it_is_the_prediction() -> None:
    assert limit() == pytest.approx(1.0, abs=0.01)


def test_a_miss_says_that_the_limit_is_lower_and_a_pass_that_it_is_higher() -> None:
    assert limit(SeenTrial(1.0, MISSED)) < 0.95
    assert limit(SeenTrial(1.0, -0.3)) > 1.05


def test_one_pause_of_the_machine_is_outvoted_by_two_trials_that_pass_above_it() -> None:
    assert limit(SeenTrial(0.7, MISSED)) < 0.85
    assert limit(SeenTrial(0.7, MISSED), SeenTrial(0.9, -0.2), SeenTrial(0.9, -0.2)) > 0.9


def test_who_is_swamped_may_get_less_done_than_who_is_just_busy() -> None:
    """Six tenths were got done of what was asked for: the limit may well be above that."""
    swamped = limit(SeenTrial(1.0, 9.0, worked_off=0.6))
    assert 0.65 < swamped < 0.95
