"""Rounds of winner and baseline: on sides that bear a known rate."""

import json
import math

import numpy as np
import pytest

from serve.workbench.tuning.confirmation import ConfirmationRound, Duel, Staircase, compared


def duel(baseline: float, winner: float, rounds: int, noise: float = 0.0) -> Duel:
    """Both begin far from what they bear."""
    draws = np.random.default_rng(0)
    one = Duel(baseline * 0.6, winner * 1.5)
    for _ in range(rounds):
        bears = [rate * math.exp(noise * draws.normal()) for rate in (baseline, winner)]
        sides = one.sides["baseline"].rate, one.sides["winner"].rate
        one.told(sides[0] <= bears[0], sides[1] <= bears[1])
    return one


def test_a_staircase_comes_to_what_a_side_bears():
    stairs = Staircase(100.0)
    for _ in range(30):
        stairs.told(stairs.rate <= 730)
    assert stairs.rate == pytest.approx(730, rel=0.06)


def test_a_staircase_that_was_misled_at_first_hurries_back():
    """Bad luck lets it settle at a third of what the side bears."""
    stairs = Staircase(250.0)
    for met in (False, True, False, True, False, True):
        stairs.told(met)
    assert stairs.is_settled
    assert stairs.rate < 270
    for _ in range(10):
        stairs.told(stairs.rate <= 730)
    assert 600 < stairs.rate < 900


@pytest.mark.parametrize(("winner", "noise"), [(250, 0.02), (250, 0.0), (100, 0.02)])
def test_a_gain_is_seen_with_an_interval_no_narrower_than_a_step(winner, noise):
    one = duel(100, winner, 12, noise=noise)
    found = one.compared()
    assert found.low < winner / 100 < found.high
    assert found.high / found.low >= 1.04**2 - 1e-9
    assert found.is_gain is (winner > 100)
    assert one.order != duel(100, winner, 11, noise=noise).order  # the sides take turns


def test_too_few_rounds_have_no_interval_and_are_no_gain():
    found = duel(100, 250, 5).compared()
    assert 0 < found.rounds < 3 or math.isfinite(found.low)
    few = compared(duel(100, 250, 12).rounds[:2])
    assert math.isnan(few.low)
    assert not few.is_gain


def test_rounds_before_both_sides_stand_where_they_belong_do_not_count():
    """What both bear is 100; the first steps of a side that begins there lead far away."""
    one = Duel(127.0, 70.0)
    for _ in range(12):
        baseline, winner = (side.rate <= 100 for side in one.sides.values())
        one.told(baseline, winner)
    assert len(one.rounds) >= 3
    assert all(0.9 < each.winner / each.baseline < 1.1 for each in one.rounds)


def test_a_baseline_that_never_meets_the_objective_counts_from_the_first_round_on():
    one = Duel(60.0, 100.0)
    one.told(False, True)
    assert one.rounds == [ConfirmationRound(60.0, 100.0)]


def test_a_duel_goes_on_where_it_was():
    one = duel(100, 250, 7)
    again = Duel.from_json(json.loads(json.dumps(one.to_json())))
    assert (again.sides, again.rounds) == (one.sides, one.rounds)
