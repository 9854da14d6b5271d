"""The last gate of a conversion: a real Triton loads the entry and answers its golden cases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import GateRefused
from serve.tensors.contracts import Case, write_contract
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.triton.config_generation import generate
from serve.triton.installation import MachineFacts
from serve.workbench.conversion.triton_load import load

from .onnx_models import Model, node, onnx_file, tensor

pytestmark = pytest.mark.triton

TABLE = np.arange(20, dtype=np.float32).reshape(5, 4)
IDS = np.array([3, 1], dtype=np.int64)


def entry(folder: Path, case: Case) -> Path:
    """A repository with the model `m`, which looks up rows of a table."""
    x, y = tensor("x", "INT64", "batch"), tensor("y", "FP32", "batch", 4)
    graph = onnx_file([x], [y], node("Gather", "table x", "y"), constants={"table": TABLE})
    signature = ModelSignature(
        "onnx", (ModelTensor("x", "INT64", (-1,)),), (ModelTensor("y", "FP32", (-1, 4)),)
    )
    model = folder / "models" / "m"
    model.parent.mkdir()
    Model({1: graph}, generate("m", signature, max_batch_size=0)).write(model)
    for path, data in write_contract([case]).items():
        (model / path).parent.mkdir(exist_ok=True)
        (model / path).write_bytes(data)
    return folder / "models"


def case(outputs: Any = TABLE[IDS]) -> Case:
    return Case({"x": IDS}, {"y": outputs}, "two rows")


def loaded(repository: Path, **more: Any) -> Any:
    return load(repository, "m", 1, state=repository.parent / "state", memory=4 << 30, **more)


def test_an_entry_whose_answers_are_the_golden_ones_is_served(tmp_path: Path) -> None:
    step = loaded(entry(tmp_path, case()))
    assert step.passed and step.summary == "Triton loads it, and 1 golden case passed"


@pytest.mark.slow
def test_an_entry_that_gives_another_answer_is_refused(tmp_path: Path) -> None:
    error = refusal(GateRefused, loaded, entry(tmp_path, case(TABLE[[0, 0]])))
    assert error.code == "not_served"
    assert "'two rows': output 'y'[0,0] is 12" in error.why


def test_where_no_triton_is_installed_the_report_says_so(tmp_path: Path) -> None:
    step = loaded(
        entry(tmp_path, case()), facts=replace(MachineFacts.here(), wheel=None, package=None)
    )
    assert step.passed and step.summary.startswith("not loaded in Triton: ")
    assert step.facts["loaded"] is False
