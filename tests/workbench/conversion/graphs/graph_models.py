"""Small ONNX models with weights, and digits with its rows."""

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serve.tensors.datatypes import Array
from serve.workbench.conversion.graphs.session import OnnxModel

ROOT = Path(__file__).parents[4]
FLOAT = TensorProto.FLOAT
Shape = Sequence[int | str] | None

value = helper.make_tensor_value_info


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node that is called like its first output; names are separated by blanks, `-` is none."""
    names = [["" if each == "-" else each for each in part.split()] for part in (inputs, outputs)]
    return helper.make_node(operator, *names, name=f"the_{names[1][0]}", **attributes)


def model(
    nodes: Iterable[onnx.NodeProto],
    weights: Mapping[str, Array] | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    opset: int = 18,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model from `x` to `y`; inputs and outputs are shapes, or (type, shape) if not FP32."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        _values(inputs or {"x": ("batch", 4)}),
        _values(outputs or {"y": ("batch", "n")}),
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = {"": opset} | dict(domains or {})
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*e) for e in opsets.items()])
    made.ir_version = 8
    return made


def _values(described: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
    typed = {name: each if _is_typed(each) else (FLOAT, each) for name, each in described.items()}
    return [value(name, *each) for name, each in typed.items()]


def _is_typed(described: Any) -> bool:
    return bool(described) and len(described) == 2 and not isinstance(described[1], int | str)


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Normally distributed."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def run(made: onnx.ModelProto, **inputs: Array) -> Mapping[str, Array]:
    """The model's answer."""
    return OnnxModel(made.SerializeToString())(inputs)


def type_of(made: onnx.ModelProto, operator: str) -> list[str]:
    """In which types the nodes of an operator get their first input."""
    graph = onnx.shape_inference.infer_shapes(made).graph
    kinds = {
        each.name: each.type.tensor_type.elem_type
        for each in (*graph.value_info, *graph.input, *graph.output)
    }
    kinds |= {each.name: each.data_type for each in graph.initializer}
    found = [kinds[each.input[0]] for each in graph.node if each.op_type == operator]
    return [TensorProto.DataType.Name(kind) for kind in found]


def digits() -> onnx.ModelProto:
    """The demo model, read anew: ONNX Runtime's quantizer changes what it is given."""
    return onnx.load(ROOT / "model_repo/digits/2/model.onnx")


@cache
def rows() -> tuple[Array, Array, Array]:
    """Rows that train, rows that are held out, and the digits of the latter."""
    spec = importlib.util.spec_from_file_location("digits_rows", ROOT / "examples/digits/data.py")
    assert spec and spec.loader
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    return data.training()[0], *data.held_out()


def samples() -> list[dict[str, Array]]:
    """Batches of digits, for calibration."""
    return [{"x": rows()[0][start : start + 32]} for start in range(0, 320, 32)]


def accuracy(made: onnx.ModelProto) -> float:
    """The share of held-out digits that the model knows."""
    _, held_out, expected = rows()
    scores = run(made, x=held_out)["probabilities"]
    return float((scores.argmax(axis=1) == expected).mean())
