"""Reports of conversions as a child process writes them, and the files beside them."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.tensors.contracts import Case, write_contract
from serve.workbench.conversion.report import (
    FILE,
    ConversionReport,
    ConversionStage,
    GateStep,
    OutputError,
    StepResult,
)
from serve.workbench.conversion.request import ConversionRequest

X = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
Y = {"name": "y", "datatype": "FP32", "shape": [-1, 3]}
ERROR = OutputError(
    "y", 90, 1.0, 2e-6, 1e-7, 2e-6, 0.02, 1.0, edges=(-8, -7, -6), histogram=(50, 30, 9, 1)
)
PASSED = StepResult(GateStep.NUMBERS, True, "worst error 2e-06 of the scale", outputs=(ERROR,))
REFUSED = replace(PASSED, passed=False, code="numbers_differ", summary="output 'y'[0] is off")


def report(*steps: StepResult, **changes: Any) -> ConversionReport:
    """One that has passed, unless a step has not."""
    one = ConversionReport(
        request=ConversionRequest("saved", seed=7),
        source=MappingProxyType({"name": "saved", "kind": "savedmodel", "digest": "ab" * 32}),
        model=MappingProxyType(
            {"digest": "cd" * 32, "bytes": 12, "opset": {"ai.onnx": 18}}
            | {"inputs": [X], "outputs": [Y]}
        ),
        is_batched=True,
        steps=steps or (PASSED,),
        stages=(ConversionStage("open", 0.1), ConversionStage("convert", 2.5)),
        peak_memory=900 << 20,
        versions=MappingProxyType({"python": "3.11.9", "tensorflow-cpu": "2.21.0"}),
        command="servegate convert onnx saved --name NAME --out DIR --seed 7",
    )
    return replace(one, **changes)


def work_folder(
    folder: Path, one: ConversionReport, *, rows: int = 2, model: bytes = b"not read"
) -> Path:
    """What the child of a conversion leaves: the model, a golden case, and the report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    x = np.ones((rows, *[max(size, 1) for size in one.model["inputs"][0]["shape"][1:]]), np.float32)
    files = write_contract([Case({one.model["inputs"][0]["name"]: x}, {"y": x}, "ones")])
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / FILE).write_bytes(one.to_bytes())
    return folder
