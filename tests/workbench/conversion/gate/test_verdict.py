"""The gate lets right models pass and refuses wrong ones, and says which is which."""

from functools import partial

import numpy as np
import pytest
from refusals import refusal
from workbench.conversion.gate.plain_models import (
    DENSE,
    WEIGHTS,
    bent,
    code,
    dense,
    judge,
    off_by,
    signature,
    softmax,
    step,
    y_of,
)

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.report import GateStep


def test_a_model_that_is_the_source_passes_every_step():
    told = []
    verdict = judge(dense, dense, tell=lambda kind, **facts: told.append((kind, facts)))
    assert verdict.passed and verdict.is_batched and not verdict.warnings
    order = [GateStep.DETERMINISM, GateStep.CONTRACT, GateStep.NUMBERS, GateStep.BATCH]
    assert [one.step for one in verdict.steps] == order
    stages = [facts["stage"] for kind, facts in told if kind == "stage"]
    assert stages == ["determinism", "contract", "numbers", "batch"]
    shares = [(facts["done"], facts["total"]) for kind, facts in told if kind == "share"]
    assert shares[0][0] == 0 and shares[-1] == (shares[0][1] - 1, shares[0][1])


def test_another_order_of_adding_passes():
    def reordered(x):
        parts = [x[:, place : place + 1] * WEIGHTS[place] for place in (3, 1, 0, 2)]
        return np.tanh(sum(parts)).astype(np.float32)

    assert judge(dense, y_of(reordered)).passed


@pytest.mark.parametrize("size", [1.0, 1e-1, 1e-2, 1e-3])
def test_an_answer_that_is_off_is_refused_with_its_place_and_its_input(size):
    verdict = judge(dense, off_by(size))
    assert code(verdict) == "numbers_differ"
    assert not verdict.cases and not verdict.is_batched
    why = step(verdict, GateStep.NUMBERS).summary
    assert why.startswith("'y'[") and "the source gives" in why and "the limit" in why


def test_a_nan_that_the_source_does_not_give_is_refused():
    def broken(inputs):
        y = dense(inputs)["y"].copy()
        y[0, 0] = np.nan
        return {"y": y}

    assert code(judge(dense, broken)) == "not_finite"


@np.errstate(invalid="ignore", divide="ignore")
def test_the_same_nan_in_both_passes():
    logarithm = y_of(lambda x: np.log(x[:, :3]))
    assert judge(logarithm, logarithm).passed


def test_a_converted_model_that_raises_is_refused():
    def raising(inputs):
        if len(inputs["x"]) == 7:
            raise ValueError("the shape is fixed to 1")
        return dense(inputs)

    verdict = judge(dense, raising)
    assert code(verdict) == "numbers_differ"
    assert "the shape is fixed to 1" in step(verdict, GateStep.NUMBERS).summary


def test_an_answer_of_another_shape_is_a_broken_contract():
    assert code(judge(dense, y_of(lambda x: bent(x)[:1]))) == "contract_differs"


def test_a_model_that_clips_only_large_values_is_seen_by_large_inputs():
    linear = y_of(lambda x: x @ WEIGHTS)
    clipped = y_of(lambda x: np.clip(x @ WEIGHTS, -60, 60))
    assert code(judge(linear, clipped)) == "numbers_differ"


def test_scores_that_a_sure_softmax_hides_are_seen_by_their_logarithm():
    def sure(x, error=0.0):
        scores = (30 * x @ WEIGHTS).astype(np.float64)
        scores[:, 0] *= 1 + error
        winner = scores.max(axis=-1, keepdims=True) + 20
        return softmax(np.concatenate([winner, scores], axis=-1)).astype(np.float32)

    wide = signature({"x": ("FP32", (-1, 4))}, {"y": ("FP32", (-1, 4))})
    assert judge(y_of(sure), y_of(sure), wide).passed
    verdict = judge(y_of(sure), y_of(lambda x: sure(x, 0.01)), wide)
    assert code(verdict) == "numbers_differ"
    assert "(log)" in step(verdict, GateStep.NUMBERS).summary


def test_a_small_output_beside_a_large_one_in_one_tensor_is_judged_by_its_own_size():
    sizes = np.float32([1000, 1000, 20])
    boxes = y_of(lambda x: bent(x) * sizes)
    wrong = y_of(lambda x: bent(x) * sizes + np.float32([0, 0, 0.04]))
    assert code(judge(boxes, wrong)) == "numbers_differ"


def test_a_source_that_answers_differently_is_no_matter_of_the_conversion():
    rng = np.random.default_rng(0)
    noisy = y_of(lambda x: bent(x) + rng.standard_normal(3).astype(np.float32))
    error = refusal(ConversionFailed, judge, noisy, dense)
    assert error.code == "not_deterministic" and "'y'" in error.why


def test_a_rounding_that_flips_is_not_held_against_a_right_model():
    def rounded(x, nudge=0.0):
        y = (x @ WEIGHTS).astype(np.float64) * (1 + nudge)
        return np.floor(y * 1000).astype(np.float32) / 1000

    assert judge(y_of(rounded), y_of(lambda x: rounded(x, 1e-8))).passed


def test_an_unsteady_model_is_refused_when_it_is_really_wrong():
    large = np.float32(1e4)
    cancelling = y_of(lambda x: ((1e4 + x @ WEIGHTS) - 1e4).astype(np.float32))
    other = y_of(lambda x: (large + x[:, ::-1] @ WEIGHTS[::-1]) - large)
    wrong = y_of(lambda x: (((1e4 + x @ WEIGHTS) - 1e4) * 1.02).astype(np.float32))
    assert judge(cancelling, other).passed
    assert code(judge(cancelling, wrong)) == "numbers_differ"


def test_winners_of_almost_equal_scores_may_differ():
    picks = signature({"x": ("FP32", (-1, 4))}, {"y": ("INT64", (-1,))})
    close = np.repeat(WEIGHTS[:, :1], 3, axis=1)
    pick = y_of(lambda x: (x @ WEIGHTS).argmax(axis=-1))
    finer = y_of(lambda x: (x.astype(np.float64) @ WEIGHTS).argmax(axis=-1))
    assert judge(pick, finer, picks).passed
    of_others = y_of(lambda x: (x @ close).argmax(axis=-1))
    assert code(judge(of_others, pick, picks)) == "numbers_differ"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (signature({"x": ("FP32", (-1, 4))}, {"z": ("FP32", (-1, 3))}), "'y' is missing"),
        (signature({"x": ("FP64", (-1, 4))}, {"y": ("FP32", (-1, 3))}), "is FP64, expected FP32"),
        (signature({"x": ("FP32", (1, 4))}, {"y": ("FP32", (-1, 3))}), "has the shape [1, 4]"),
        (signature({"x": ("FP32", (-1, 4))}, {"y": ("FP32", (-1, 2))}), "has the shape [-1, 2]"),
        (signature({"x": ("FP32", (-1, 4))}, {"y": ("FP32", (-1, 3, 1))}), "[-1, 3, 1]"),
        (
            signature({"x": ("FP32", (-1, 4)), "more": ("FP32", ())}, {"y": ("FP32", (-1, 3))}),
            "'more' is not in the signature",
        ),
    ],
)
def test_another_signature_is_refused_before_anything_is_run(found, said):
    verdict = judge(dense, lambda inputs: pytest.fail("it was run"), DENSE, found)
    assert code(verdict) == "contract_differs"
    assert said in step(verdict, GateStep.CONTRACT).summary


def test_channels_are_moved_for_the_inputs_that_are_named():
    last = signature({"x": ("FP32", (-1, 5, 6, 3))}, {"y": ("FP32", (-1, 3))})
    first = signature({"x": ("FP32", (-1, 3, 5, 6))}, {"y": ("FP32", (-1, 3))})
    source, converted = (y_of(partial(np.mean, axis=axes)) for axes in ((1, 2), (2, 3)))
    verdict = judge(source, converted, last, first, nchw=("x",))
    assert verdict.passed and verdict.is_batched
    assert verdict.cases[0].inputs["x"].shape == (1, 3, 5, 6)


def test_a_generated_input_that_the_source_does_not_take_is_left_out_and_told():
    def picky(inputs):
        if np.abs(inputs["x"]).max(initial=0) > 50:
            raise ValueError("too large")
        return dense(inputs)

    verdict = judge(picky, dense)
    assert verdict.passed
    inputs = step(verdict, GateStep.NUMBERS).facts["inputs"]
    assert "huge" in str([one for one in inputs if "skipped" in one])


def test_a_dead_model_is_told():
    dead, other = (y_of(lambda x, y=y: np.full((len(x), 3), y, np.float32)) for y in (0, 0.001))
    verdict = judge(dead, dead)
    assert verdict.passed
    assert any("'y' is the same for all" in one for one in verdict.warnings)
    assert code(judge(dead, other))


def test_an_output_that_is_sure_of_everything_is_told():
    sure = y_of(lambda x: (x[:, :3] > 0.005).astype(np.float32))
    assert any("'y' is 0 or 1" in one for one in judge(sure, sure).warnings)


def test_a_softmax_that_is_sure_of_usual_inputs_is_seen_by_small_ones():
    @np.errstate(under="ignore")
    def sure(x, error=0.0):
        return softmax((500 * x @ WEIGHTS).astype(np.float64) * (1 + error)).astype(np.float32)

    assert judge(y_of(sure), y_of(sure)).passed
    assert code(judge(y_of(sure), y_of(lambda x: sure(x, 0.002)))) == "numbers_differ"
