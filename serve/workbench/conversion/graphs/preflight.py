"""What TensorRT will refuse in an ONNX file, found on the CPU before a GPU is used.

| looked at         | refused                                                                      |
|-------------------|------------------------------------------------------------------------------|
| operators         | those that the table lacks, other domains, restrictions of single operators  |
| types             | texts, complex, other integers; UINT8 but for inputs and outputs             |
| Q/DQ pairs        | zero points other than 0, UINT8 and INT32, scales that are computed          |
| control flow      | a Loop that collects an unknown number of results, branches of other ranks   |

Notes (`blocks` is false) are about what TensorRT changes or may not take: DOUBLE becomes FP32.
Source: the table's restrictions, see `tensorrt_table`. A static check cannot promise a build.

Which operators of ONNX TensorRT's parser takes, by the types that it computes them in.

Source: "Supported ONNX Operators" of onnx-tensorrt, docs/operators.md, for TensorRT 10.15, opsets 9
to 24; TensorRT 11 lists opset 25 as its highest. What 10.1 did not list is in `LATER`. STFT is left
out: 10.15 lists it for real input and constant frames only, older ones not at all.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto

from serve.workbench.conversion.graphs import elements
from serve.workbench.conversion.graphs.restrictions import SCALED, GraphView, restriction

# --- tensorrt table -------------------------------------------------------------------------------


OPSETS = range(9, 26)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# FP32, FP16, BF16
FLOATS = _names(
    """
    Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv
    ConvTranspose Cos Cosh CumSum DeformConv Dropout Einsum Elu Erf Exp Floor GRU Gemm
    GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization HardSigmoid HardSwish
    Hardmax ImageScaler InstanceNormalization IsInf LRN LSTM LayerNormalization LeakyRelu Log
    LogSoftmax LpNormalization LpPool MatMul MaxPool MeanVarianceNormalization Mish
    NonMaxSuppression NonZero PRelu ParametricSoftplus QuantizeLinear RNN RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Reciprocal Resize RoiAlign Round ScaledTanh
    Scan Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Upsample
    """
)
# the same, INT32 and INT64
NUMBERS = _names(
    """
    Abs Add ArgMax ArgMin DepthToSpace Div Equal Gelu Greater GreaterOrEqual IsNaN Less LessOrEqual
    Max Mean Min Mod Mul Neg Pad Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Scatter ScatterElements ScatterND
    Shrink Sign SpaceToDepth Sub Sum TopK
    """
)
# the same, and BOOL
ANY = _names(
    """
    And Cast CastLike Concat Constant ConstantOfShape DequantizeLinear Expand EyeLike Flatten Gather
    GatherElements GatherND Identity If Loop Not OneHot Or Reshape ReverseSequence Shape Size Slice
    Split Squeeze Tile Transpose Trilu Unsqueeze Where Xor
    """
)
LATER = _names(
    """
    Attention BlackmanWindow HammingWindow HannWindow RMSNormalization RotaryEmbedding TensorScatter
    """
)
OPERATORS = FLOATS | NUMBERS | ANY | LATER


# --- preflight ------------------------------------------------------------------------------------


PLUGINS = "trt.plugins"  # the domain in which TensorRT's own plug-ins stand
_INTEGER_PRODUCTS = ("ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinear")
_EVERYWHERE = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE,
     TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
)  # fmt: skip
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_SCALING = ("QuantizeLinear", "DequantizeLinear")
_CASTS = ("Cast", "CastLike")


@dataclass(frozen=True, slots=True)
class Problem:
    """One node that TensorRT refuses, or a note; without a node it is about the whole model."""

    operator: str
    node: str
    why: str
    blocks: bool = True


def preflight(model: onnx.ModelProto) -> tuple[Problem, ...]:
    """All that is found, in the order of the graph; without any that `blocks` TensorRT may try."""
    known = elements.inferred(model)
    own = {(each.domain, each.name) for each in known.functions}
    findings = [*_about_model(known), *_of_graph(known.graph, None, own)]
    doubles = [each for each in findings if each.why == _DOUBLE]
    others = [each for each in findings if each.why != _DOUBLE]
    if doubles:
        first = doubles[0]
        more = f" (here and in {len(doubles) - 1} other nodes)" if len(doubles) > 1 else ""
        others.append(Problem(first.operator, first.node, _DOUBLE + more, blocks=False))
    return tuple(others)


_DOUBLE = "TensorRT computes DOUBLE as FP32"


def _about_model(model: onnx.ModelProto) -> Iterator[Problem]:
    opset = elements.opset(model)
    if opset not in OPSETS:
        why = f"the model has opset {opset}, TensorRT supports {OPSETS[0]} to {OPSETS[-1]}"
        yield Problem("", "", why)
    if any(
        tensor.data_location == TensorProto.EXTERNAL
        for part in elements.graphs(model.graph)
        for tensor in part.initializer
    ):
        yield Problem(
            "", "", "the weights are in other files, which must be in its folder", blocks=False
        )


def _of_graph(
    graph: Any, outer: GraphView | None, own: Collection[tuple[str, str]]
) -> Iterator[Problem]:
    view = GraphView.of(graph, outer)
    for node in graph.node:
        label = elements.called(node)
        why = _operator(node, own) or _types(node, view) or restriction(node, view)
        if why:
            yield Problem(node.op_type, label, why)
        elif note := _note(node, view):
            yield Problem(node.op_type, label, note, blocks=False)
        for body in elements.bodies(node):
            yield from _of_graph(body, view, own)


def _operator(node: Any, own: Collection[tuple[str, str]]) -> str:
    """Why TensorRT does not know the operator."""
    if node.domain == PLUGINS or (node.domain, node.op_type) in own:
        return ""
    if node.domain not in elements.STANDARD:
        return f"its domain is '{node.domain}', which needs a plug-in of that name"
    if node.op_type in OPERATORS:
        return ""
    if node.op_type.startswith(_INTEGER_PRODUCTS):
        return "TensorRT supports quantised models only as symmetric Q/DQ pairs"
    return "TensorRT does not support this operator"


def _types(node: Any, view: GraphView) -> str:
    """Why a tensor of the node cannot be of its type."""
    for name in (*node.input, *node.output):
        kind = view.types.get(name)
        if not name or kind is None or kind in _EVERYWHERE:
            continue
        word = TensorProto.DataType.Name(kind)
        if kind in SCALED:
            if not elements.is_standard(node, (*_SCALING, "Constant")):
                return f"'{name}' is {word}, which is allowed only between Q and DQ"
        elif kind == TensorProto.UINT8 and not elements.is_standard(node, _SCALING):
            if not _is_border(node, name, view):
                return f"'{name}' is UINT8, which only inputs and outputs of the model can be"
        elif not elements.is_standard(node, _SCALING):
            return f"'{name}' is {word}, which TensorRT does not support"
    return ""


def _is_border(node: Any, name: str, view: GraphView) -> bool:
    """Whether a UINT8 tensor is cast right behind an input, or right before an output."""
    return elements.is_standard(node, _CASTS) and name in (
        view.inputs if name in node.input else view.outputs
    )


def _note(node: Any, view: GraphView) -> str:
    """What is worth knowing of a node that is not refused."""
    kinds = {view.types.get(name) for name in (*node.input, *node.output) if name}
    if TensorProto.DOUBLE in kinds:
        return _DOUBLE
    if elements.is_standard(node, LATER):
        return "only newer versions of TensorRT support it (10.15 does, 10.1 does not)"
    data = view.types.get(node.input[0]) if node.input else None
    if elements.is_standard(node, FLOATS) and data in _INTEGERS:
        return "TensorRT's table lists it for floats only, and this one has integers"
    if elements.is_standard(node, FLOATS | NUMBERS) and data == TensorProto.BOOL:
        return "TensorRT's table lists it for numbers only, and this one has booleans"
    return ""
