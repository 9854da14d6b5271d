"""FP16: casts in the graph, so that heavy operators compute in half precision. Inputs and outputs
keep their types, and so do the bodies of If, Loop and Scan.

Every node of the outer graph is of one of four kinds:

| kind  | operators                         | computes in                                       |
|-------|-----------------------------------|---------------------------------------------------|
| heavy | products with weights             | FP16, or the model is refused                     |
| light | element by element                | FP16 where both sides are, by the rules below     |
| moves | values from place to place        | the same rules                                    |
| exact | all others: sums over many values | FP32: softmax, norms, means, exp, division, sizes |

A light or moving node stays in FP32 when one of these holds, tried until nothing changes:

1. A value does not fit: an input or output exceeds `LARGEST` with the samples (a mask of -1e9), or
   a constant is lost (an epsilon of 1e-12).
2. All that it takes comes from FP32: the statistics inside of a norm, the scaling of an input.
3. All that take its result compute in FP32, but for the bias that follows a product: squares that
   are to be summed, the scaling before a softmax.
4. Its result is rounded, compared or made an index: there, a little off is entirely off.

Shape and Size read no values: they take a tensor as it is, and do not count among its takers.

A heavy node whose values do not fit, or whose weights are lost, is refused: `fp16_overflow`. ONNX
Runtime computes most FP16 nodes in FP32 on the CPU, without going through FP16 between two of them
(measured with 1.31), so an overflow is not seen there when the model runs. It is measured here.

onnxruntime.transformers.float16 is not used: it cuts weights that do not fit to 65504 without a
word, converts bodies, and keeps no statistics of a norm in FP32.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serve.tensors.datatypes import Array
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.graphs import elements
from serve.workbench.conversion.graphs.ranges import magnitudes
from serve.workbench.conversion.graphs.session import check

END = 65504.0  # the largest number of FP16
LARGEST = END / 2  # samples show a part of what comes: one binary digit in reserve
LOST = 0.01  # of a constant's norm, through rounding: FP16 alone loses 0.0005 at most

HEAVY = elements.PRODUCTS
LIGHT = frozenset(
    {"Abs", "Add", "AveragePool", "BatchNormalization", "Clip", "Elu", "Erf", "HardSigmoid",
     "HardSwish", "LeakyRelu", "Max", "MaxPool", "Min", "Mul", "Neg", "PRelu", "Relu", "Selu",
     "Sigmoid", "Softsign", "Sub", "Sum", "Tanh", "ThresholdedRelu"}
)  # fmt: skip
MOVES = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
     "Identity", "Pad", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
     "Transpose", "Unsqueeze", "Where"}
)  # fmt: skip
STEPS = frozenset(
    {"ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less",
     "LessOrEqual", "Mod", "NonMaxSuppression", "NonZero", "Range", "Round", "Sign", "TopK",
     "Unique"}
)  # fmt: skip
_SIZES = ("Shape", "Size")
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def to_fp16(model: onnx.ModelProto, samples: Sequence[Mapping[str, Array]]) -> onnx.ModelProto:
    """A copy that computes in FP16; `fp16_overflow` names the node whose values do not fit."""
    halves = _Choice(model, samples).halves()
    halved = onnx.ModelProto()
    halved.CopyFrom(model)
    graph = halved.graph
    known = elements.types(elements.inferred(model).graph)
    writer = _Writer(graph, known)
    for place, node in enumerate(list(graph.node)):
        writer.write(node, in_half=place in halves)
    writer.close()
    elements.drop_unused(graph)
    check(halved)
    return halved


class _Choice:
    """Which nodes of the outer graph compute in FP16, by place."""

    def __init__(self, model: onnx.ModelProto, samples: Sequence[Mapping[str, Array]]) -> None:
        self._graph = model.graph
        self._nodes = list(model.graph.node)
        self._types = elements.types(elements.inferred(model).graph)
        self._constants = elements.constants(model.graph)
        self._source = {
            name: place for place, node in enumerate(self._nodes) for name in node.output if name
        }
        self._users: dict[str, list[int]] = {}
        for place, node in enumerate(self._nodes):
            if elements.is_standard(node, _SIZES):
                continue
            for name in {*node.input, *elements.captured(node)} - {""}:
                self._users.setdefault(name, []).append(place)
        self._halves = {place for place, node in enumerate(self._nodes) if self._may(node)}
        tensors = {name for place in self._halves for name in self._values(self._nodes[place])}
        self._magnitudes = magnitudes(model, sorted(tensors), samples)

    def halves(self) -> frozenset[int]:
        """The places; rule 1 first, then the others until nothing changes."""
        self._halves = {place for place in self._halves if self._fits(self._nodes[place])}
        while leaving := {place for place in self._halves if self._stays_full(place)}:
            self._halves -= leaving
        return frozenset(self._halves)

    def _may(self, node: Any) -> bool:
        """Whether its kind allows it, all its types are known, and there is FP32 to make FP16."""
        if not elements.is_standard(node, HEAVY | LIGHT | MOVES):
            return False
        names = [name for name in (*node.input, *node.output) if name]
        kinds = [self._types.get(name) for name in names]
        floats = [kind for kind in kinds if kind in _FLOATS]
        return None not in kinds and bool(floats) and set(floats) == {TensorProto.FLOAT}

    def _values(self, node: Any) -> list[str]:
        """The FP32 tensors it takes and gives, without constants."""
        return [name for name in (*node.input, *node.output) if self._is_value(name)]

    def _is_value(self, name: str) -> bool:
        return self._types.get(name) == TensorProto.FLOAT and name not in self._constants

    def _fits(self, node: Any) -> bool:
        """Rule 1; raises for a heavy node."""
        why = ""
        for name in self._values(node):
            if (largest := self._magnitudes[name]) > LARGEST:
                why = f"'{name}' reaches {largest:.4g} with the samples; FP16 ends at {END:.0f}"
        for name in node.input:
            tensor = self._constants.get(name)
            if tensor is not None and tensor.data_type == TensorProto.FLOAT:
                why = why or _loss(name, numpy_helper.to_array(tensor))
        if why and node.op_type in HEAVY:
            label = elements.called(node)
            raise failed("fp16_overflow", f"{label}: {why}", operator=node.op_type, node=label)
        return not why

    def _stays_full(self, place: int) -> bool:
        """Rules 2, 3 and 4."""
        node = self._nodes[place]
        if node.op_type in HEAVY:
            return False
        sources = [self._source.get(name) for name in node.input if self._is_value(name)]
        if sources and not self._halves.intersection(sources):
            return True
        users = [user for name in node.output for user in self._users.get(name, ())]
        if any(self._is_step(user) for user in users):
            return True
        follows = any(source is not None and self._is_heavy(source) for source in sources)
        is_bias = follows and node.op_type in ("Add", "Sub") and len(sources) == 1
        return bool(users) and not is_bias and not self._halves.intersection(users)

    def _is_heavy(self, place: int) -> bool:
        return place in self._halves and self._nodes[place].op_type in HEAVY

    def _is_step(self, place: int) -> bool:
        node = self._nodes[place]
        if elements.is_standard(node, ("Cast",)):
            return int(elements.attribute(node, "to")) not in _FLOATS
        return elements.is_standard(node, STEPS)


def _loss(name: str, values: Array) -> str:
    """Why a constant is not the same in FP16; empty when it is, but for rounding."""
    values = values[np.isfinite(values)].astype(np.float64)
    largest = float(np.abs(values).max(initial=0))
    if largest > END:
        return f"'{name}' contains {largest:.4g}; FP16 ends at {END:.0f}"
    off = np.linalg.norm(values - values.astype(np.float16).astype(np.float64))
    share = float(off / (np.linalg.norm(values) or 1.0))
    if share > LOST:
        return f"'{name}' is so small (at most {largest:.4g}) that FP16 loses {share:.0%} of it"
    return ""


class _Writer:
    """Writes the nodes of a graph again, with casts where FP16 begins and ends.

    A tensor in FP32 keeps its name, so bodies and outputs find it; in FP16 it has another one.
    """

    def __init__(self, graph: Any, known: elements.Types) -> None:
        self._graph = graph
        self._types = known
        self._constants = elements.constants(graph)
        self._half: dict[str, str] = {}  # names of tensors that exist in FP16
        self._only_half: set[str] = set()  # those that do not exist in FP32
        self._taken = {*known, *elements.used(graph)}
        self._nodes: list[Any] = []

    def write(self, node: Any, *, in_half: bool) -> None:
        """One node, after the casts of what it takes."""
        if elements.is_standard(node, _SIZES) and node.input[0] in self._only_half:
            node.input[0] = self._half[node.input[0]]
        elif not in_half:
            for name in sorted({*node.input, *elements.captured(node)}):
                self._need_full(name)
        if not in_half:
            self._nodes.append(node)
            return
        written = onnx.NodeProto()
        written.CopyFrom(node)
        written.input[:] = [self._in_half(name) for name in node.input]
        for place, name in enumerate(node.output):
            if self._is_float(name):
                written.output[place] = self._half[name] = self._fresh(name)
                self._only_half.add(name)
        self._nodes.append(written)

    def close(self) -> None:
        """The outputs, and the nodes into the graph."""
        for each in self._graph.output:
            self._need_full(each.name)
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        gone = self._only_half
        described = [each for each in self._graph.value_info if each.name not in gone]
        del self._graph.value_info[:]
        self._graph.value_info.extend(described)

    def _is_float(self, name: str) -> bool:
        return bool(self._types.get(name) == TensorProto.FLOAT)

    def _in_half(self, name: str) -> str:
        """The name under which a tensor is there in FP16."""
        if not self._is_float(name) or name in self._half:
            return self._half.get(name, name)
        half = self._half[name] = self._fresh(name)
        if name in self._constants:
            values = numpy_helper.to_array(self._constants[name])
            with np.errstate(over="ignore"):  # infinities of the model's own
                self._graph.initializer.append(
                    numpy_helper.from_array(values.astype(np.float16), half)
                )
        else:
            self._cast(name, half, TensorProto.FLOAT16)
        return half

    def _need_full(self, name: str) -> None:
        if name in self._only_half:
            self._only_half.discard(name)
            self._cast(self._half[name], name, TensorProto.FLOAT)

    def _cast(self, name: str, to: str, kind: int) -> None:
        self._nodes.append(helper.make_node("Cast", [name], [to], name=f"{to}/cast", to=kind))

    def _fresh(self, name: str) -> str:
        half = f"{name}/fp16"
        while half in self._taken:
            half += "_"
        self._taken.add(half)
        return half
