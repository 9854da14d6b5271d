"""ONNX graphs put together node by node, with a fault in one place, or in another style.

A `Fault` makes a wrong one. `size` goes from 1, which is all wrong, to 0: a right model mixed with
that share of the wrong one, or numbers that are off by that share.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from serve.tensors.datatypes import Array
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor

DATATYPES = {"tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(int64)": "INT64"}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, how much, and where: `site` chooses among the places of the model."""

    kind: str = ""
    size: float = 0.0
    site: int = 0


@dataclass(frozen=True, slots=True)
class Style:
    """Another right way to compute the same: hidden units in another order, or sums in two parts.

    `noise`: weights off by so much, as float32 rounds them when factors are folded in. `is_double`:
    everything in float64.
    """

    is_shuffled: bool = False
    is_split: bool = False
    is_folded: bool = False
    noise: float = 0.0
    is_double: bool = False


RIGHT, PLAIN = Fault(), Style()


class Session:
    """A runner: ONNX Runtime with one thread. `level`: how much it rearranges the graph."""

    def __init__(self, model: bytes, level: str = "ORT_ENABLE_ALL") -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._names = [one.name for one in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run it."""
        answers = self._session.run(self._names, dict(inputs))
        return dict(zip(self._names, answers, strict=True))

    @property
    def signature(self) -> ModelSignature:
        """What it takes and gives."""
        return ModelSignature(
            "onnx",
            tuple(map(_spec, self._session.get_inputs())),
            tuple(map(_spec, self._session.get_outputs())),
        )


class Graph:
    """Nodes and weights while they are put together."""

    def __init__(self, rng: np.random.Generator, fault: Fault, style: Style) -> None:
        self.rng, self.fault, self.style = rng, fault, style
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._seen: dict[str, int] = {}
        self._wrong = np.random.default_rng(fault.site)

    @property
    def real(self) -> int:
        """The type that it computes in."""
        return int(TensorProto.DOUBLE if self.style.is_double else TensorProto.FLOAT)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, array: Array) -> str:
        """A constant of the type that it computes in, unless it is of whole numbers."""
        if array.dtype.kind == "f":
            array = array.astype(np.float64 if self.style.is_double else np.float32)
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def is_here(self, kind: str, sites: int) -> bool:
        """Whether this place is the one with the fault; each kind counts its places."""
        place = self._seen.get(kind, 0)
        self._seen[kind] = place + 1
        return self.fault.kind == kind and self.fault.site % sites == place

    def weight(self, *shape: int) -> Array:
        """A matrix or kernel, its size so that sums keep their size."""
        fan = int(np.prod(shape[:-1])) if len(shape) == 2 else int(np.prod(shape[1:]))
        made: Array = self.rng.standard_normal(shape) * np.sqrt(2 / fan)
        made = made.astype(np.float32).astype(np.float64)
        if self.is_here("weights", 3):
            made = made * (1 + self.fault.size * self._wrong.standard_normal(shape))
        if self.style.noise:
            made = made * (1 + self.style.noise * np.random.default_rng(1).standard_normal(shape))
        return made

    def bias(self, length: int) -> Array:
        """A bias of the size of what it is added to, more or less."""
        made: Array = (self.rng.standard_normal(length) * 0.3).astype(np.float32).astype(np.float64)
        if self.is_here("biases", 3):
            made = made + self.fault.size * 0.3 * self._wrong.standard_normal(length)
        return made

    def mixed(self, right: str, wrong: str) -> str:
        """The right one with a share of the wrong one."""
        size = self.fault.size
        if size == 1:
            return wrong
        kept = self.node("Mul", right, self.constant(np.array(1 - size)))
        return self.node("Add", kept, self.node("Mul", wrong, self.constant(np.array(size))))

    def operator(self, x: str, apply: Callable[[str], str], sites: int = 2) -> str:
        """An operator that may be dropped."""
        right = apply(x)
        return self.mixed(right, x) if self.is_here("dropped operator", sites) else right

    def turned(self, x: str, turn: Callable[[str, bool], str]) -> str:
        """Something along an axis, which may be the wrong one."""
        right = turn(x, False)
        return self.mixed(right, turn(x, True)) if self.is_here("wrong axis", 1) else right

    def scaled(self, x: str) -> str:
        """Something that may be scaled wrongly."""
        if not self.is_here("wrong scale", 2):
            return x
        return self.node("Mul", x, self.constant(np.array(1 + self.fault.size)))

    def dense(self, x: str, matrix: Array, bias: Array) -> str:
        """x·matrix + bias, the sum in two parts where the style wants that."""
        if not self.style.is_split:
            product = self.node("MatMul", x, self.constant(matrix))
            return self.node("Add", product, self.constant(bias))
        half = matrix.shape[0] // 2
        parts = [
            self.node(
                "MatMul",
                self.node(
                    "Slice",
                    x,
                    *(self.constant(np.array([number])) for number in (start, stop, -1)),
                ),
                self.constant(matrix[start:stop]),
            )
            for start, stop in ((half, matrix.shape[0]), (0, half))
        ]
        parts[1] = self.node("Add", parts[1], self.constant(bias))
        return self.node("Add", *parts)

    def order(self, length: int) -> Array:
        """In which order hidden units stand."""
        return (
            np.random.default_rng(2).permutation(length)
            if self.style.is_shuffled
            else np.arange(length)
        )

    def takes(self, name: str, kind: int, *shape: int) -> str:
        """An input with rows of that shape, in the type that it computes in."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        is_real = kind == TensorProto.FLOAT and self.style.is_double
        return self.node("Cast", name, to=self.real) if is_real else name

    def gives(self, x: str, name: str, *shape: int) -> None:
        """An output."""
        self.nodes.append(helper.make_node("Cast", [x], [name], name, to=TensorProto.FLOAT))
        self.outputs.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        )

    def model(self) -> bytes:
        """The file."""
        graph = helper.make_graph(self.nodes, "model", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 18)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def _spec(one: Any) -> ModelTensor:
    shape = tuple(size if isinstance(size, int) else DYNAMIC for size in one.shape)
    return ModelTensor(one.name, DATATYPES[one.type], shape)
