"""What TensorRT asks of single operators, beyond having them: the last column of its table."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from onnx import TensorProto, numpy_helper

from serve.tensors.datatypes import Array
from serve.workbench.conversion.graphs import elements

MOST_TOPK = 3840
ENDLESS = 1 << 31  # a number of trips that stands for "until the condition says so"
_RANKS_OF_POOLS = range(3, 6)
_RESIZE = {
    "mode": ("nearest", "linear"),
    "coordinate_transformation_mode": (
        "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners",
    ),
    "nearest_mode": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    "keep_aspect_ratio_policy": ("stretch",),
}  # fmt: skip
SCALED = (TensorProto.INT8, TensorProto.INT4, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT4E2M1)

Rule = Callable[[Any, "GraphView"], str]


@dataclass(frozen=True, slots=True)
class GraphView:
    """What is known of a graph's tensors, with those of the graphs around it.

    `fixed`: tensors that are the same in every call, because they are computed from constants.
    """

    types: elements.Types
    shapes: Mapping[str, tuple[int | None, ...]]
    constants: Mapping[str, TensorProto]
    fixed: frozenset[str]
    inputs: frozenset[str]
    outputs: frozenset[str]

    @classmethod
    def of(cls, graph: Any, outer: Self | None) -> Self:
        """The view of a graph after `elements.inferred`."""
        constants = dict(outer.constants if outer else {}) | elements.constants(graph)
        shapes = dict(outer.shapes if outer else {})
        for value in (*graph.value_info, *graph.input, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                shapes[value.name] = tuple(map(_size, value.type.tensor_type.shape.dim))
        shapes |= {each.name: tuple(each.dims) for each in graph.initializer}
        fixed = {*constants, *(outer.fixed if outer else ())}
        for node in graph.node:
            names = [name for name in node.input if name]
            is_size = elements.is_standard(node, ("Shape", "Size")) and _is_static(shapes, names)
            if is_size or (names and fixed.issuperset(names) and not any(elements.bodies(node))):
                fixed.update(node.output)
        return cls(
            elements.types(graph, outer.types if outer else None),
            shapes,
            constants,
            frozenset(fixed),
            frozenset(each.name for each in graph.input),
            frozenset(each.name for each in graph.output),
        )

    def value(self, name: str) -> Array | None:
        """The value of a constant; None for what is computed."""
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)


def restriction(node: Any, view: GraphView) -> str:
    """Why TensorRT does not take this node of an operator that it has; empty when it does."""
    if node.domain not in elements.STANDARD:
        return ""
    rule = _RULES.get(node.op_type)
    return rule(node, view) if rule else ""


def _size(dimension: Any) -> int | None:
    return int(dimension.dim_value) if dimension.HasField("dim_value") else None


def _is_static(shapes: Mapping[str, tuple[int | None, ...]], names: list[str]) -> bool:
    return bool(names) and None not in shapes.get(names[0], (None,))


def _input(node: Any, place: int) -> str:
    return node.input[place] if place < len(node.input) else ""


def _fixed(place: int, word: str) -> Rule:
    """A rule: that input, where it is given, is known when the engine is built."""

    def rule(node: Any, view: GraphView) -> str:
        name = _input(node, place)
        return f"its {word} '{name}' must be constant" if name and name not in view.fixed else ""

    return rule


def _pool(node: Any, view: GraphView) -> str:
    rank = len(view.shapes.get(node.input[0], (None,) * _RANKS_OF_POOLS[0]))
    if rank not in _RANKS_OF_POOLS:
        return f"it pools over {rank - 2} dimensions, TensorRT supports at most 3"
    if any(each != 1 for each in elements.attribute(node, "dilations", ())):
        return "it has dilations"
    if node.op_type == "MaxPool" and len(node.output) > 1 and node.output[1]:
        return "it also returns indices"
    return ""


def _recurrent(node: Any, view: GraphView) -> str:
    if elements.attribute(node, "layout", 0):
        return "its layout is 1, TensorRT supports 0"
    if elements.attribute(node, "input_forget", 0):
        return "it couples the input and forget gates"
    functions = elements.attribute(node, "activations", [])
    half = len(functions) // 2
    if elements.attribute(node, "direction", b"forward") == b"bidirectional" and (
        functions[:half] != functions[half:]
    ):
        return "its two directions have different activations"
    return ""


def _resize(node: Any, view: GraphView) -> str:
    for name, allowed in _RESIZE.items():
        found = elements.attribute(node, name)
        if found is not None and found.decode() not in allowed:
            return f"its {name} is {found.decode()}, TensorRT supports {', '.join(allowed)}"
    return "it uses antialias" if elements.attribute(node, "antialias", 0) else ""


def _scatter(node: Any, view: GraphView) -> str:
    found = elements.attribute(node, "reduction", b"none").decode()
    return "" if found == "none" else f"its reduction is {found}, TensorRT supports only none"


def _topk(node: Any, view: GraphView) -> str:
    if not elements.attribute(node, "sorted", 1):
        return "its result is not sorted"
    count = view.value(_input(node, 1))
    if count is not None and int(count.max()) >= MOST_TOPK:
        return f"its k is {int(count.max())}, TensorRT supports less than {MOST_TOPK}"
    return ""


def _training(node: Any, view: GraphView) -> str:
    mode = view.value(_input(node, 2)) if node.op_type == "Dropout" else None
    is_asked = node.op_type == "Dropout" and bool(_input(node, 2)) and (mode is None or mode.any())
    return (
        "it is in training mode" if is_asked or elements.attribute(node, "training_mode", 0) else ""
    )


def _constant(node: Any, view: GraphView) -> str:
    names = {each.name for each in node.attribute}
    wrong = names & {"sparse_value", "value_string", "value_strings"}
    return f"its value is a {wrong.pop()}" if wrong else ""


def _one_output(node: Any, view: GraphView) -> str:
    return "it has more than one output" if any(node.output[1:]) else ""


def _eye(node: Any, view: GraphView) -> str:
    return (
        "" if _is_static(view.shapes, list(node.input)) else "its size is not known at build time"
    )


def _grid(node: Any, view: GraphView) -> str:
    rank = len(view.shapes.get(node.input[0], (None,) * 4))
    return "" if rank == 4 else f"its input has {rank} dimensions, TensorRT supports 4"


def _if(node: Any, view: GraphView) -> str:
    branches = [elements.attribute(node, name) for name in ("then_branch", "else_branch")]
    for one, other in zip(*(branch.output for branch in branches), strict=False):
        ranks = [_rank(each) for each in (one, other)]
        if None not in ranks and ranks[0] != ranks[1]:
            return (
                f"'{one.name}' has {ranks[0]} dimensions in one branch and {ranks[1]} in the other"
            )
    return ""


def _rank(value: Any) -> int | None:
    kind = value.type.tensor_type
    return len(kind.shape.dim) if kind.HasField("shape") else None


def _loop(node: Any, view: GraphView) -> str:
    carried = len(node.input) - 2
    if len(node.output) <= carried:
        return ""
    trips = view.value(_input(node, 0))
    if trips is None or int(trips.max()) >= ENDLESS:
        return f"the number of results in '{node.output[carried]}' is not known at build time"
    return ""


def _scaling(node: Any, view: GraphView) -> str:
    """Q and DQ: INT8 or a type as small, symmetric, with scales that are known."""
    zero_name = _input(node, 2)
    name = node.input[0] if node.op_type == "DequantizeLinear" else node.output[0]
    kind = view.types.get(zero_name) if zero_name else view.types.get(name)
    if node.op_type == "QuantizeLinear" and not zero_name:
        kind = elements.attribute(node, "output_dtype", 0) or TensorProto.UINT8
    if kind is not None and kind not in SCALED:
        return f"it quantises to {TensorProto.DataType.Name(kind)}, TensorRT supports INT8"
    zero = view.value(zero_name) if zero_name else None
    if zero_name and zero is None:
        return "its zero point is not constant, TensorRT requires 0"
    if zero is not None and zero.astype("f4").any():
        worst = max(zero.astype("f4").ravel().tolist(), key=abs)
        return f"its zero point is {worst:.0f}, TensorRT requires 0 (symmetric quantisation)"
    scale = view.value(_input(node, 1))
    if scale is None:
        return "" if _input(node, 1) in view.fixed else "its scale is not constant"
    wrong = [each for each in scale.astype("f8").ravel().tolist() if not 0 < each < math.inf]
    return f"its scale is {wrong[0]:g}, which is not a positive number" if wrong else ""


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Squeeze", "Unsqueeze",
)  # fmt: skip
_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(_REDUCTIONS, _fixed(1, "axes")),
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
        **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
        **dict.fromkeys(("BatchNormalization", "Dropout"), _training),
        **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scaling),
        "Constant": _constant,
        "CumSum": _fixed(1, "axis"),
        "EyeLike": _eye,
        "GridSample": _grid,
        "If": _if,
        "LayerNormalization": _one_output,
        "Loop": _loop,
        "OneHot": _fixed(1, "depth"),
        "Resize": _resize,
        "ScatterND": _scatter,
        "TopK": _topk,
    }
)
