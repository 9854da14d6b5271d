"""Small model files: ONNX graphs, and headers of TensorRT plans."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serve.tensors.datatypes import Array

FLOAT = TensorProto.FLOAT


value = helper.make_tensor_value_info


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node that is called like its first output; names are separated by blanks, `-` is none."""
    names = [["" if each == "-" else each for each in part.split()] for part in (inputs, outputs)]
    return helper.make_node(operator, *names, **{"name": f"the_{names[1][0]}"} | attributes)


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
        values_of(inputs or {"x": ("batch", 4)}),
        values_of(outputs or {"y": ("batch", "n")}),
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = {"": opset} | dict(domains or {})
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*e) for e in opsets.items()])
    made.ir_version = 8
    return made


def values_of(described: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
    typed = {name: each if is_typed(each) else (FLOAT, each) for name, each in described.items()}
    return [value(name, *each) for name, each in typed.items()]


def is_typed(described: Any) -> bool:
    return bool(described) and len(described) == 2 and not isinstance(described[1], int | str)


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Normally distributed."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def copying(element: int = FLOAT, *sizes: int | str | None) -> onnx.ModelProto:
    """A model that gives its input `x` back as `y`."""
    spec = (element, sizes or ("batch", 3))
    return model([node("Identity", "x", "y")], inputs={"x": spec}, outputs={"y": spec})


def multiplying(factor: Array, width: int) -> onnx.ModelProto:
    """A model whose rows come out times a factor."""
    rows = ("batch", width)
    return model([node("Mul", "x w", "y")], {"w": factor}, inputs={"x": rows}, outputs={"y": rows})


def scaling(location: str) -> onnx.ModelProto:
    """A model whose one weight lies in another file."""
    made = multiplying(np.float32([1, 2, 3]), 3)
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    weight.external_data.add(key="length", value="12")
    return made


def times(path: Path, factor: float) -> Path:
    """A file whose rows of four come out times a factor; it converts without TensorFlow."""
    return save(multiplying(np.float32([factor]), 4), path)


def save(made: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def plan(path: Path, *rows: str, version: Sequence[int] = (10, 3, 0, 26)) -> Path:
    """A plan as far as its header; `rows` are for the TensorRT of the tests."""
    header = b"ftrt" + bytes(4) + bytes(16) + bytes(version)
    path.write_bytes(header + "\n".join(rows).encode())
    return path


def classifier(path: Path, *, labels: Sequence[int | str] = (3, 5, 8)) -> Path:
    """A classifier of three classes as skl2onnx writes it: a label, and maps of probabilities."""
    weights = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    nodes = [
        helper.make_node("MatMul", ["X", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("ArgMax", ["shares"], ["output_label"], keepdims=0, axis=1),
        helper.make_node(
            "ZipMap", ["shares"], ["output_probability"], domain="ai.onnx.ml", **{kind: labels}
        ),
    ]
    key = TensorProto.STRING if isinstance(labels[0], str) else TensorProto.INT64
    share = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, share))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [value("X", TensorProto.FLOAT, ["rows", 4])],
        [
            value("output_label", TensorProto.INT64, ["rows"]),
            helper.make_value_info("output_probability", maps),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
