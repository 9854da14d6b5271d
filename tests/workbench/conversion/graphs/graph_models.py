"""Digits with its rows, and what a model answers."""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import onnx
from onnx import TensorProto

from serve.tensors.datatypes import Array
from serve.workbench.conversion.graphs.session import OnnxModel

ROOT = Path(__file__).parents[4]


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
