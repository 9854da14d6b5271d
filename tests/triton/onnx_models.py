"""Small ONNX models, and the model directories around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENT_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "STRING": TensorProto.STRING,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a graph; a word among the dimensions stands for a free one."""

    name: str
    data_type: str
    dims: tuple[int | str, ...]

    def value(self) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(self.name, ELEMENT_TYPES[self.data_type], self.dims)


def tensor(name: str, data_type: str, *dims: int | str) -> Tensor:
    return Tensor(name, data_type, dims)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node by the names of its inputs and outputs, separated by spaces."""
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def onnx_file(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *nodes: onnx.NodeProto,
    constants: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> bytes:
    """A serialised model. A constant that is called like an input is that input's default."""
    graph = helper.make_graph(
        nodes,
        "test",
        [each.value() for each in inputs],
        [each.value() for each in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return serialised(graph)


def serialised(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def identity(data_type: str, *dims: int | str) -> bytes:
    """A model that gives its input `x` back as `y`."""
    x, y = tensor("x", data_type, *dims), tensor("y", data_type, *dims)
    return onnx_file([x], [y], node("Identity", "x", "y"))


def sequence_of(data_type: str, *dims: int | str) -> bytes:
    """A model whose output `y` is not a tensor, but a list of them."""
    x = tensor("x", data_type, *dims)
    y = helper.make_tensor_sequence_value_info("y", ELEMENT_TYPES[data_type], dims)
    graph = helper.make_graph([node("SequenceConstruct", "x", "y")], "test", [x.value()], [y])
    return serialised(graph)


@dataclass(frozen=True, slots=True)
class Model:
    """A model directory: the file of each version, and config.pbtxt, or None for no such file."""

    versions: Mapping[int, bytes]
    config: str | None
    filename: str = "model.onnx"

    def write(self, directory: Path) -> None:
        directory.mkdir()
        for version, content in self.versions.items():
            path = directory / str(version) / self.filename
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        if self.config is not None:
            (directory / "config.pbtxt").write_text(self.config)


ONE_INSTANCE = "instance_group { kind: KIND_CPU count: 1 }"


def config(inputs: str, outputs: str, *more: str, max_batch_size: int = 8) -> str:
    """A config.pbtxt with one instance; tensors are written `name TYPE dims; name TYPE dims`."""
    lines = ['backend: "onnxruntime"', f"max_batch_size: {max_batch_size}", ONE_INSTANCE]
    for role, tensors in (("input", inputs), ("output", outputs)):
        for text in filter(None, tensors.split("; ")):
            name, data_type, dims, *rest = text.split(" ", 3)
            entry = f'name: "{name}" data_type: TYPE_{data_type} dims: {dims}'
            lines.append(f"{role} {{ {' '.join([entry, *rest])} }}")
    return "\n".join([*lines, *more])
