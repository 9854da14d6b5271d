"""The last gate of a conversion: a real Triton loads the entry and answers its golden cases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from serve.core.errors import GateRefused
from serve.tensors.contracts import Case, write_contract
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.triton.config_generation import generate
from serve.triton.installation import MachineFacts
from serve.workbench.conversion.triton_load import load

pytestmark = pytest.mark.triton

TABLE = np.arange(20, dtype=np.float32).reshape(5, 4)
IDS = np.array([3, 1], dtype=np.int64)


def entry(folder: Path, case: Case) -> Path:
    """A repository with the model `m`, which looks up rows of a table."""
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["batch"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    graph = helper.make_graph([node], "m", [x], [y], [numpy_helper.from_array(TABLE, "table")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    signature = ModelSignature(
        "onnx", (ModelTensor("x", "INT64", (-1,)),), (ModelTensor("y", "FP32", (-1, 4)),)
    )
    model = folder / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.onnx").write_bytes(made.SerializeToString())
    (model / "config.pbtxt").write_text(generate("m", signature, max_batch_size=0))
    for path, data in write_contract([case]).items():
        (model / path).parent.mkdir(exist_ok=True)
        (model / path).write_bytes(data)
    return folder / "models"


def case(inputs: Any = IDS, outputs: Any = TABLE[IDS]) -> Case:
    return Case({"x": inputs}, {"y": outputs}, "two rows")


def loaded(repository: Path, **more: Any) -> Any:
    return load(repository, "m", 1, state=repository.parent / "state", memory=4 << 30, **more)


def test_an_entry_whose_answers_are_the_golden_ones_is_served(tmp_path: Path) -> None:
    step = loaded(entry(tmp_path, case()))
    assert (step.passed, step.summary) == (
        True,
        "Triton loads it, and 1 golden case passed",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"outputs": TABLE[[0, 0]]}, "'two rows': output 'y'[0,0] is 12"),
        ({"inputs": IDS + 9}, "'two rows': "),
    ],
    ids=["another answer", "an input that the model does not take"],
)
def test_an_entry_that_triton_does_not_serve_is_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(GateRefused) as caught:
        loaded(entry(tmp_path, case(**changes)))
    assert caught.value.code == "not_served" and why in str(caught.value.why)


def test_where_no_triton_is_installed_the_report_says_so(tmp_path: Path) -> None:
    step = loaded(
        entry(tmp_path, case()), facts=replace(MachineFacts.here(), wheel=None, package=None)
    )
    assert step.passed and step.summary.startswith("not loaded in Triton: ")
    assert step.facts["loaded"] is False
