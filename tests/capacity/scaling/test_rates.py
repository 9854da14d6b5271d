"""Rates: chance is not run after, and a change is followed at once."""

import math

import numpy as np
import pytest

from serve.capacity.scaling.policy import RECENT, Rate, follow


def followed(rates: list[float], *, known: Rate | None = None) -> list[Rate]:
    """What is believed after each five seconds that had so many calls per second."""
    found: list[Rate] = []
    for tick, recent in enumerate(rates):
        lately = sum(rates[max(0, tick - 2) : tick + 1]) / min(3, tick + 1)
        known = follow(known, recent, lately, RECENT)
        found.append(known)
    return found


def test_a_steady_rate_is_itself() -> None:
    assert {one.now for one in followed([80.0] * 50)} == {80.0}


def test_chance_is_smoothed() -> None:
    counts = np.random.default_rng(1).poisson(100.0 * RECENT, 500) / RECENT
    found = [one.now for one in followed(counts.tolist())][20:]
    assert max(found) < 108 and min(found) > 92


def test_what_scatters_more_is_smoothed_as_well() -> None:
    counts = np.random.default_rng(2).gamma(4.0, 25.0, 500)
    found = followed(counts.tolist())[100:]
    assert math.sqrt(found[-1].variance) == pytest.approx(50.0, rel=0.5)
    assert np.quantile([one.now for one in found], 0.95) < 170


def test_a_jump_is_followed_at_once_up_and_down() -> None:
    up = followed([100.0] * 50 + [400.0] * 5)
    assert up[50].now > 350 and up[52].now > 380
    down = followed([400.0] * 50 + [100.0] * 5)
    assert down[52].now < 120


def test_a_jump_is_none_of_the_scatter() -> None:
    found = followed([100.0] * 50 + [400.0])
    assert math.sqrt(found[-1].variance) < 10


def test_no_calls_are_no_rate() -> None:
    assert followed([0.0] * 3)[-1].now == 0.0
    assert followed([50.0] * 20 + [0.0] * 100)[-1].now == pytest.approx(0.0, abs=0.1)
