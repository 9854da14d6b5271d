"""What a graph really computes in, whatever was asked for: counted from the file itself.

The compute nodes are the products, where the time goes. One is FP16 when its values and weights
are, and INT8 when both come from DequantizeLinear, with nothing but moves in between.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import onnx
from onnx import TensorProto, numpy_helper

from serve.workbench.conversion.graphs import elements
from serve.workbench.conversion.report import GateStep, StepResult
from serve.workbench.conversion.request import Precision

_MOVES = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_SCALINGS = ("QuantizeLinear", "DequantizeLinear")
_NAMES = {
    TensorProto.FLOAT: "fp32",
    TensorProto.FLOAT16: "fp16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.DOUBLE: "fp64",
}
_OPERANDS = 2  # of a product: a value and its weights, or two values


def contents(model: onnx.ModelProto) -> Mapping[str, Any]:
    """Facts about the types a graph computes in, as plain values.

    `compute`: nodes by type, `int8`, `fp16`, `fp32`, … or `other`; `qdq_pairs`; `zero_points`: how
    many of them are not 0; `quantised_weights`: constants behind a pair; `casts` to a float type.
    """
    facts = _Facts()
    facts.add(elements.inferred(model).graph, {})
    return MappingProxyType(
        {
            "compute": dict(sorted(facts.compute.items())),
            "qdq_pairs": facts.pairs,
            "zero_points": facts.zero_points,
            "quantised_weights": facts.weights,
            "casts": facts.casts,
        }
    )


def last_operators(model: onnx.ModelProto) -> Mapping[str, str]:
    """The operator that makes the values of each output, before moves and scalings."""
    sources = elements.producers(model.graph)
    found = {}
    for output in model.graph.output:
        node = sources.get(output.name)
        while node is not None and elements.is_standard(node, (*_MOVES, *_SCALINGS)):
            node = sources.get(node.input[0])
        found[output.name] = node.op_type if node is not None and not node.domain else ""
    return MappingProxyType(found)


def check_precision(model: onnx.ModelProto, wanted: Precision) -> StepResult:
    """The step of the gate; `precision_missing` when no product computes in what was asked for.

    FP32 means "as the source has it": it is not refused for what a source computes in FP16.
    """
    facts = contents(model)
    compute = facts["compute"]
    total = sum(compute.values())
    words = ", ".join(f"{count} in {kind.upper()}" for kind, count in compute.items())
    summary = f"{total} compute nodes: {words}" if total else "there are no compute nodes"
    passed = wanted is Precision.FP32 or compute.get(str(wanted), 0) > 0
    if wanted is Precision.INT8 and facts["zero_points"]:
        passed = False
        summary += f"; {facts['zero_points']} zero points are not 0"
    code = "" if passed else "precision_missing"
    return StepResult(GateStep.PRECISION, passed, summary, code, facts=facts)


class _Facts:
    """The counts, over a graph and its bodies."""

    def __init__(self) -> None:
        self.compute: Counter[str] = Counter()
        self.pairs = self.zero_points = self.weights = self.casts = 0

    def add(self, graph: Any, outer: elements.Types) -> None:
        """Count the nodes of a graph; bodies see the types of the graph around."""
        types = elements.types(graph, outer)
        sources, constants = elements.producers(graph), elements.constants(graph)
        for node in graph.node:
            if elements.is_standard(node, elements.PRODUCTS):
                self.compute[_kind(node, types, sources)] += 1
            elif elements.is_standard(node, ("Cast",)):
                self.casts += elements.attribute(node, "to") in _NAMES
            elif elements.is_standard(node, _SCALINGS):
                self._add_scaling(node, sources, constants)
            for body in elements.bodies(node):
                self.add(body, types)

    def _add_scaling(
        self, node: Any, sources: Mapping[str, Any], constants: Mapping[str, TensorProto]
    ) -> None:
        self.zero_points += not _is_symmetric(node, constants)
        if node.op_type == "QuantizeLinear":
            return
        source = sources.get(node.input[0])
        quantised = node.input[0]
        if source is not None and elements.is_standard(source, ("QuantizeLinear",)):
            self.pairs += 1
            quantised = source.input[0]
        self.weights += quantised in constants


def _is_symmetric(node: Any, constants: Mapping[str, TensorProto]) -> bool:
    """Whether the zero point of a Q or DQ is 0; one that is left out is."""
    if len(node.input) <= _OPERANDS or not node.input[_OPERANDS]:
        return True
    zero = constants.get(node.input[_OPERANDS])
    return zero is not None and not numpy_helper.to_array(zero).any()


def _kind(node: Any, types: elements.Types, sources: Mapping[str, Any]) -> str:
    """What a product computes in."""
    operands = list(_operands(node))
    if all(_is_dequantised(name, sources) for name in operands):
        return "int8"
    kinds = {_NAMES.get(types.get(name, 0), "other") for name in operands}
    return kinds.pop() if len(kinds) == 1 else "other"


def _operands(node: Any) -> Iterator[str]:
    """A value and its weights; of recurrent operators also the weights of their own state."""
    count = _OPERANDS + (node.op_type in ("LSTM", "GRU", "RNN"))
    yield from node.input if node.op_type == "Einsum" else node.input[:count]


def _is_dequantised(name: str, sources: Mapping[str, Any]) -> bool:
    node = sources.get(name)
    while node is not None and elements.is_standard(node, _MOVES):
        node = sources.get(node.input[0])
    return node is not None and elements.is_standard(node, ("DequantizeLinear",))
