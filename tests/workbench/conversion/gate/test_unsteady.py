"""Pictures of one colour do not decide alone where an operation divides by their spread."""

import numpy as np
import pytest
from workbench.conversion.gate.plain_models import code, judge, samples_of, signature, step, y_of

from serve.workbench.conversion.gate.tallies import JudgedOutput, OutputTally
from serve.workbench.conversion.report import GateStep

PICTURES = signature({"x": ("UINT8", (-1, 6, 6, 3))}, {"y": ("FP32", (-1, 6, 6, 3))})


def standardised(pixels, rounding=0.0):
    """Each picture without its mean, over its spread, as tf.image.per_image_standardization."""
    x = pixels.astype(np.float32) * np.float32(1 / 3)
    mean = x.mean(axis=(1, 2, 3), keepdims=True) * np.float32(1 + rounding)
    spread = np.maximum(x.std(axis=(1, 2, 3), keepdims=True), np.float32(1 / np.sqrt(x[0].size)))
    return ((x - mean) / spread).astype(np.float32)


SOURCE = y_of(standardised)
ROUNDED = y_of(lambda x: standardised(x, 4e-7))  # as in another order of adding


def test_a_rounding_that_only_a_picture_of_one_colour_shows_passes():
    verdict = judge(SOURCE, ROUNDED, PICTURES)
    assert verdict.passed, step(verdict, GateStep.NUMBERS).summary
    skipped = {
        one["input"]: one.get("skipped", "")
        for one in step(verdict, GateStep.NUMBERS).facts["inputs"]
    }
    assert skipped["huge, 3 rows"] == "the source itself is unstable there"
    assert not skipped["uniform, 3 rows"]


def test_a_few_samples_of_one_colour_do_not_decide():
    given = np.random.default_rng(1).integers(0, 256, (40, 6, 6, 3)).astype(np.uint8)
    given[3] = 255
    assert judge(SOURCE, ROUNDED, PICTURES, samples=samples_of(given)).passed


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: standardised(x, 1e-3),
        lambda x: standardised(x) * np.float32(1.001),
        lambda x: standardised(x)[:, ::-1],
    ],
    ids=["another mean", "another scale", "upside down"],
)
def test_a_wrong_model_of_pictures_is_refused_by_ordinary_ones(wrong):
    assert code(judge(SOURCE, y_of(wrong), PICTURES)) == "numbers_differ"


def test_a_nan_for_a_picture_of_one_colour_is_refused():
    def divides(x):
        is_plain = x.astype(np.float32).std(axis=(1, 2, 3), keepdims=True) == 0
        return np.where(is_plain, np.float32(np.nan), standardised(x))

    assert code(judge(SOURCE, y_of(divides), PICTURES)) == "not_finite"


def test_the_largest_id_still_decides():
    """A whole number that is no byte of a picture is not nudged: it may be an id."""
    table = np.random.default_rng(2).standard_normal((200, 3)).astype(np.float32)
    ids = signature({"x": ("INT32", (-1, 4))}, {"y": ("FP32", (-1, 4, 3))})

    def looked_up(x, rows=200):
        if x.max(initial=0) > 199:
            raise ValueError("beyond the table")
        return table[np.minimum(x, rows - 1)]

    verdict = judge(y_of(looked_up), y_of(lambda x: looked_up(x, 199)), ids)
    assert code(verdict) == "numbers_differ"


# --- one output in one call: what is too unsteady to be judged hides nothing beside it ------------


def beside_an_unsteady(value):
    """Two elements: one is lost where the source is too unsteady, the other should be 1."""
    got, expected = np.array([np.nan, value]), np.array([1.0, 1.0])
    gaps = np.array([np.inf, abs(value - 1.0)])
    return JudgedOutput(got, expected, gaps, np.array([np.inf, 0.1]), np.asarray(1.0))


def test_an_element_that_is_not_judged_hides_no_wrong_one():
    judged = beside_an_unsteady(2.0)
    assert judged.excess == 10
    assert judged.place == (1,)
    assert not judged.is_lost


def test_an_element_that_is_not_judged_does_not_count_as_an_error():
    tally = OutputTally("y")
    tally.add(beside_an_unsteady(1.05), "normal")
    error = tally.error()
    assert 0 < error.excess < 1
    assert (error.elements, tally.unjudged) == (2, 1)
