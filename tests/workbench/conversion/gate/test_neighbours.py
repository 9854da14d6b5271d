"""A row that depends on its neighbours takes the batching away, and not the model."""

import numpy as np
import pytest
from workbench.conversion.gate.plain_models import (
    bent,
    dense,
    judge,
    samples_of,
    signature,
    step,
    y_of,
)

from serve.workbench.conversion.report import GateStep


def scaled_to_the_largest(x):
    """By the largest of the batch: seen only beside a large neighbour."""
    step = max(float(np.abs(x).max(initial=0)), 8.0) / 127
    return bent((np.rint(x / step) * step).astype(np.float32))


DEPENDING = {
    "centred over the batch, as a BatchNorm in training": lambda x: bent(x) - bent(x).mean(axis=0),
    "scaled to the largest": scaled_to_the_largest,
    "sorted": lambda x: np.sort(bent(x), axis=0),
    "by the place": lambda x: bent(x) + np.arange(len(x), dtype=np.float32)[:, None],
}


@pytest.mark.parametrize("model", DEPENDING.values(), ids=DEPENDING)
def test_rows_that_depend_on_each_other_or_on_their_place_are_not_batched(model):
    verdict = judge(y_of(model), y_of(model))
    assert verdict.passed and not verdict.is_batched
    assert "no batching: source: 'y'" in step(verdict, GateStep.BATCH).summary


def test_rows_that_do_not_depend_are_batched():
    verdict = judge(dense, dense)
    assert verdict.is_batched
    summary = "5 rows give the same results alone and in a batch"
    assert step(verdict, GateStep.BATCH).summary == summary


@pytest.mark.parametrize(
    "of",
    [
        signature({"x": ("FP32", (1, 4))}, {"y": ("FP32", (1, 3))}),
        signature({"x": ("FP32", (-1, 4))}, {"y": ("FP32", (3,))}),
    ],
)
def test_a_tensor_without_a_free_first_dimension_is_not_batched(of):
    first = dense if len(of.outputs[0].shape) == 2 else y_of(lambda x: bent(x).sum(axis=0))
    verdict = judge(first, first, of)
    assert verdict.passed and not verdict.is_batched
    assert "has no free first dimension" in step(verdict, GateStep.BATCH).summary


def test_answers_that_are_not_one_for_each_row_are_not_batched():
    """As the picks of a non-maximum suppression."""
    picked = y_of(lambda x: bent(x)[bent(x)[:, 0] > 0])
    verdict = judge(picked, picked)
    assert verdict.passed and not verdict.is_batched
    assert "'y' has shape" in step(verdict, GateStep.BATCH).summary


def test_a_model_that_takes_no_single_row_is_not_batched():
    def paired(inputs):
        if len(inputs["x"]) % 2:
            raise ValueError("rows come in pairs")
        return dense(inputs)

    verdict = judge(paired, paired)
    assert verdict.passed and not verdict.is_batched
    assert "rows come in pairs" in step(verdict, GateStep.BATCH).summary


def test_the_users_samples_are_asked_for_it_as_well():
    only_with_nines = y_of(lambda x: bent(x) + np.float32(np.sum(x[:, 0] == 9) > 1))
    samples = samples_of(np.full((3, 4), 9, dtype=np.float32))
    assert judge(only_with_nines, only_with_nines).is_batched
    assert not judge(only_with_nines, only_with_nines, samples=samples).is_batched
