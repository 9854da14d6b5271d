"""INT8 is judged by rows that its calibration has not seen, and by rows that say something."""

import numpy as np
import pytest
from workbench.conversion.gate.plain_models import (
    WEIGHTS,
    code,
    judge,
    samples_of,
    softmax,
    step,
    y_of,
)

from serve.workbench.conversion.gate import InputSamples, Labelled
from serve.workbench.conversion.gate.calibration import divide
from serve.workbench.conversion.report import GateStep
from serve.workbench.conversion.request import Precision

OFFSETS = np.array([1, 0, 0], dtype=np.float32)  # by which place 0 wins where inputs are small


def rows(count, scale=1.0):
    rng = np.random.default_rng(3)
    return (rng.standard_normal((count, 4)) * scale).astype(np.float32)


def shares(x):
    return softmax(x @ WEIGHTS + OFFSETS).astype(np.float32)


scores = y_of(shares)


def clipped(largest):
    """As INT8 does with a scale from rows that reach so far."""
    return y_of(lambda x: shares(np.clip(x, -largest, largest)))


def labelled(count):
    given = rows(count)
    return Labelled(samples_of(given), shares(given).argmax(axis=-1))


def verified(source, converted, given, *, labels=None, **asked):
    """The gate on INT8 that was calibrated with `given`."""
    division = divide(given, labels, 0)
    return judge(
        source,
        converted,
        samples=division.judging,
        labelled=labels,
        division=division,
        precision=Precision.INT8,
        **asked,
    )


@pytest.mark.parametrize(("count", "held"), [(100, 50), (250, 50), (1000, 200)])
def test_a_fifth_of_the_samples_is_held_back_but_at_least_fifty(count, held):
    division = divide(samples_of(np.arange(count)), None, 0)
    kept, back = division.calibrating.arrays["x"], division.judging.arrays["x"]
    assert (len(back), division.judging.count) == (held, held)
    assert sorted([*kept, *back]) == list(range(count))
    assert not division.lacks


def test_what_is_held_back_is_drawn_from_all_of_a_sorted_file():
    back = divide(samples_of(np.arange(1000)), None, 0).judging.arrays["x"]
    assert back.min() < 50 and back.max() > 950 and 400 < back.mean() < 600
    assert np.array_equal(back, divide(samples_of(np.arange(1000)), None, 0).judging.arrays["x"])


def test_an_input_of_several_rows_for_each_sample_is_divided_by_samples():
    pairs = InputSamples(
        {"x": np.arange(200), "c": np.ones(3)}, {"x": 2, "c": 0}, 100, is_joinable=False
    )
    back = divide(pairs, None, 0).judging
    assert (back.arrays["x"].reshape(50, 2) % 2 == [0, 1]).all()
    assert back.arrays["c"].tolist() == [1, 1, 1]


def test_too_few_rows_verify_nothing():
    for given, labels, why in (
        (None, 0, "there are no samples and no labelled rows"),
        (99, 0, "there are 99 samples (at least 100 needed)"),
        (None, 49, "there are 49 labelled rows (at least 50 needed)"),
        (3, 2, "there are 3 samples (at least 100 needed)"
         " and 2 labelled rows (at least 50 needed)"),
        (100, 0, ""),
        (None, 50, ""),
        (3, 50, ""),
    ):  # fmt: skip
        samples = None if given is None else samples_of(rows(given))
        assert divide(samples, labelled(labels) if labels else None, 0).lacks == why


def test_samples_that_are_scaled_once_more_are_refused():
    """They are judged by themselves, so their numbers agree: the range says that it is wrong."""
    verdict = verified(scores, clipped(0.07), samples_of(rows(200, 0.02)))
    assert step(verdict, GateStep.NUMBERS).passed
    assert code(verdict) == "unverified"
    assert "the samples of 'x' only reach 0.06" in step(verdict, GateStep.VERIFICATION).summary
    assert not verdict.cases


def test_samples_that_always_have_the_same_answer_are_refused():
    """Their range is usual; but they are those of another model, or scaled for another one."""
    given = np.full((200, 4), 0.6, dtype=np.float32)
    verdict = verified(scores, scores, samples_of(given))
    assert code(verdict) == "unverified"
    winner = int(shares(given)[0].argmax())
    assert f"'y' is {winner} for all 50 rows" in step(verdict, GateStep.VERIFICATION).summary


def test_samples_of_the_right_scale_pass_and_say_what_judged():
    verdict = verified(scores, scores, samples_of(rows(200)))
    assert verdict.passed
    summary = "calibrated with 150 samples, verified with 50 held-back samples"
    assert step(verdict, GateStep.VERIFICATION).summary == summary


def test_what_is_accepted_unverified_passes_and_is_marked():
    for given in (None, samples_of(rows(5)), samples_of(rows(200, 0.02))):
        verdict = verified(scores, scores, given, accept_unverified=True)
        assert verdict.passed
        why = step(verdict, GateStep.VERIFICATION).facts["unverified"]
        assert verdict.warnings[0] == f"not verified: {why}"
    assert not step(
        verified(scores, scores, samples_of(rows(200)), accept_unverified=True),
        GateStep.VERIFICATION,
    ).facts


def test_few_labels_do_not_stand_for_the_values():
    turned = y_of(lambda x: shares(x)[:, ::-1])
    verdict = verified(scores, turned, samples_of(rows(200)), labels=labelled(2), max_drop=1.0)
    assert code(verdict) == "numbers_differ"
