"""Golden cases have the shapes that config.pbtxt gives tensors in Triton."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from workbench.conversion.gate.plain_models import judge, signature, y_of
from workbench.conversion.reports import report

from serve.core.versions import VersionFile
from serve.triton.config import parse
from serve.triton.lint import LintSubject, lint
from serve.workbench.conversion.entry import configuration

square = y_of(np.square)
table = y_of(lambda x: np.eye(101, 4, dtype=np.float32)[x])
total = y_of(lambda x: x.sum(dtype=np.float32))
totals = y_of(lambda x: x.sum(axis=1))

MODELS: dict[str, Any] = {  # what is computed, input, output, whether it can be batched
    "rows": (square, ("FP32", (-1, 4)), ("FP32", (-1, 4)), True),
    "a rank of one": (square, ("FP32", (-1,)), ("FP32", (-1,)), False),
    "ids": (table, ("INT64", (-1,)), ("FP32", (-1, 4)), False),
    "an answer of rank one": (totals, ("FP32", (-1, 4)), ("FP32", (-1,)), False),
    "one number": (total, ("FP32", (-1, 4)), ("FP32", ()), False),
    "scalars": (square, ("FP32", ()), ("FP32", ()), False),
    "a fixed size": (square, ("FP32", (3,)), ("FP32", (3,)), False),
}
CAN = ("a rank of one", "ids", "an answer of rank one", "rows")  # be batched, when asked for


def made(name: str, largest: int | None) -> tuple[Any, Any]:
    """The gate's verdict and the configuration of a model."""
    compute, x, y, _ = MODELS[name]
    wanted = signature({"x": x}, {"y": y})
    verdict = judge(compute, compute, wanted, max_batch_size=largest)
    assert verdict.passed, verdict.steps
    page = wanted.to_json()
    facts = {"inputs": page["inputs"], "outputs": page["outputs"], "opset": {"ai.onnx": 18}}
    one = report(model={**report().model, **facts}, is_batched=verdict.is_batched)
    one = replace(one, request=replace(one.request, max_batch_size=largest))
    shapes = {name: array.shape for name, array in verdict.cases[0].inputs.items()}
    config = parse(configuration("m", one, shapes))
    files = (VersionFile("1/model.onnx", 1, "ab" * 32),)
    assert lint(LintSubject("m", config, files, wanted)) == ()
    return verdict, config.message


@pytest.mark.parametrize("name", MODELS)
def test_what_has_only_rows_is_not_batched_and_keeps_its_shape(name: str) -> None:
    verdict, message = made(name, None)
    assert (message.max_batch_size > 0) is verdict.is_batched is MODELS[name][3]
    assert_agree(verdict, message)


@pytest.mark.parametrize("largest", [0, 1, 8])
@pytest.mark.parametrize("name", CAN)
def test_golden_cases_have_a_second_dimension_with_batches(name: str, largest: int) -> None:
    verdict, message = made(name, largest)
    assert message.max_batch_size == largest
    assert_agree(verdict, message)


def assert_agree(verdict: Any, message: Any) -> None:
    """Triton would take and give tensors of the shapes in every golden case."""
    batch = [-1] if message.max_batch_size else []
    for case in verdict.cases:
        arrays = case.inputs | case.outputs
        for spec in (*message.input, *message.output):
            pairs = zip([*batch, *spec.dims], arrays[spec.name].shape, strict=True)
            assert all(want in (-1, have) for want, have in pairs), spec
