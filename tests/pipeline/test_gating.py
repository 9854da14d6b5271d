"""What the gate of the pipeline lets through, and why."""

import harness
import pytest

decide = harness.load_example("examples/kubeflow/gating.py").decide


def test_a_first_model_passes_when_it_is_good_enough():
    passed, why = decide(570, 599, 0, 0, 0.95, 0.0)
    assert passed
    assert why == "570 of 599 held-out rows right (95.16%); no version has the label yet"


def test_a_first_model_below_the_minimum_is_kept_back():
    passed, why = decide(569, 599, 0, 0, 0.95, 0.0)
    assert not passed
    assert why == "569 of 599 held-out rows right (94.99%); at least 95.00% is needed"


def test_a_model_below_the_minimum_is_kept_back_also_where_it_is_the_better_one():
    assert not decide(300, 599, 200, 599, 0.95, 0.0)[0]


@pytest.mark.parametrize(("right", "passed"), [(587, True), (586, True), (585, False)])
def test_as_many_right_answers_as_the_labelled_version_are_needed(right, passed):
    assert decide(right, 599, 586, 599, 0.9, 0.0)[0] is passed


@pytest.mark.parametrize(("right", "passed"), [(995, True), (994, False)])
def test_so_much_may_be_lost_as_is_allowed_and_not_a_row_more(right, passed):
    assert decide(right, 1000, 1000, 1000, 0.9, 0.005)[0] is passed


def test_the_reason_has_the_numbers_of_both():
    _, why = decide(560, 599, 586, 599, 0.9, 0.005)
    assert why == (
        "560 of 599 held-out rows right (93.49%); the labelled version has 586 right (97.83%): "
        "26 lost, 2 may be"
    )


def test_numbers_of_other_rows_are_not_compared():
    passed, why = decide(600, 600, 1, 599, 0.9, 0.0)
    assert not passed and "was asked 599 rows" in why


def test_nothing_measured_is_not_good_enough():
    assert decide(0, 0, 0, 0, 0.0, 1.0) == (False, "nothing was measured")
