"""INT8: pairs of QuantizeLinear and DequantizeLinear (Q/DQ) where TensorRT computes in INT8.

| what is quantised                       | how                                                    |
|-----------------------------------------|--------------------------------------------------------|
| what Conv, Gemm and MatMul take         | symmetric, one scale, the largest magnitude of samples |
| their weights, if constant              | symmetric, one scale per output channel                |
| the shortcut of a residual Add          | symmetric, one scale; so Conv, Add and Relu fuse       |
| outputs, biases, products of two values | not at all                                             |

All zero points are 0, each consumer has a pair of its own, and weights stay FP32 behind a pair:
TensorRT takes nothing else (NVIDIA, "Working with Quantized Types"; ONNX Runtime's defaults differ
in every one of these). ONNX Runtime's quantizer does the work, without its optimiser, which would
write operators that only its own CPU knows.

A scale comes from the largest magnitude over all samples (MinMax). Tried on digits with 32 to 1184
rows: MinMax, entropy and percentiles from 99.9 on keep all 586 of 599 right answers, a percentile
of 99 loses one or two. MinMax needs no histograms, so tensors are not kept.
"""

import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from serve.tensors.datatypes import Array
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.graphs import elements
from serve.workbench.conversion.graphs.ranges import samples_that_run
from serve.workbench.conversion.graphs.session import check

WEIGHTED = ("Conv", "Gemm", "MatMul")
OLDEST = 13  # the opset in which scales per channel came
_WEIGHT = 1  # which input of a weighted operator is the weight
_OPTIONS: Mapping[str, Any] = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    "AddQDQPairToWeight": True,
    "QuantizeBias": False,
    "DedicatedQDQPair": True,
    "OpTypesToExcludeOutputQuantization": [*WEIGHTED, "Add"],
    "QDQOpTypePerChannelSupportToAxis": {"MatMul": 1},
}


def to_int8(model: onnx.ModelProto, samples: Sequence[Mapping[str, Array]]) -> onnx.ModelProto:
    """A copy with Q/DQ pairs; `precision_missing` when there is nothing to quantise."""
    named = _named(model)
    weighted, residual = _weighted(named), _residual(named)
    if not weighted or elements.opset(named) < OLDEST:
        why = f"INT8 needs opset {OLDEST} or later, the model has {elements.opset(named)}"
        if not weighted:
            why = f"it has no {', '.join(WEIGHTED)} in FP32 with constant weights"
        raise failed("precision_missing", why)
    if not samples:
        raise failed("samples_invalid", "INT8 calibration needs sample rows")
    quantised = _quantised(named, [*weighted, *residual], samples)
    _join_products(quantised, residual)
    elements.drop_unused(quantised.graph)
    elements.drop_unused_domains(quantised)
    quantised.producer_name, quantised.producer_version = (
        model.producer_name,
        model.producer_version,
    )
    check(quantised)
    return quantised


class _Reader:
    """Hands out samples one by one, as ONNX Runtime's calibration asks for them."""

    def __init__(self, samples: Iterable[Mapping[str, Array]]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        """The next one; None at the end."""
        sample = next(self._rest, None)
        return None if sample is None else dict(sample)


def _quantised(
    model: onnx.ModelProto, nodes: Sequence[str], samples: Iterable[Mapping[str, Array]]
) -> onnx.ModelProto:
    """By ONNX Runtime's quantizer, which works with files: in a folder that is gone afterwards."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    logger = logging.getLogger()
    disabled = logger.manager.disable
    with tempfile.TemporaryDirectory() as folder, samples_that_run():
        source, path = Path(folder) / "model.onnx", Path(folder) / "quantised.onnx"
        onnx.save(model, source)
        logging.disable(logging.WARNING)  # it recommends its optimiser, which we do not want
        try:
            quantize_static(
                source,
                path,
                _Reader(samples),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=[*WEIGHTED, "Add"],
                nodes_to_quantize=list(nodes),
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
                extra_options=dict(_OPTIONS),
            )
        finally:
            logging.disable(disabled)
        return onnx.load(path)


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every node of the outer graph has a name of its own."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    taken: set[str] = set()
    for node in named.graph.node:
        name = elements.called(node)
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name
    return named


def _weighted(model: onnx.ModelProto) -> list[str]:
    """The names of products of an FP32 value with constant weights."""
    weights = {
        name
        for name, tensor in elements.constants(model.graph).items()
        if tensor.data_type == TensorProto.FLOAT
    }
    return [
        node.name
        for node in model.graph.node
        if elements.is_standard(node, WEIGHTED)
        and node.input[_WEIGHT] in weights
        and node.input[0] not in weights
    ]


def _residual(model: onnx.ModelProto) -> dict[str, int]:
    """The sums of a convolution and something else, and which of the two inputs it is.

    Only that convolution is looked at whose result nobody else takes: else it cannot fuse.
    """
    graph = model.graph
    sources, constants = elements.producers(graph), elements.constants(graph)
    users = [name for node in graph.node for name in node.input]
    users += [each.name for each in graph.output]
    found: dict[str, int] = {}
    for node in graph.node:
        if not elements.is_standard(node, ("Add",)) or constants.keys() & set(node.input):
            continue
        for place, name in enumerate(node.input):
            source = sources.get(name)
            if source and elements.is_standard(source, ("Conv",)) and users.count(name) == 1:
                found.setdefault(node.name, place)
    return found


def _join_products(model: onnx.ModelProto, residual: Mapping[str, int]) -> None:
    """Take the pair out, in place, between a convolution and the sum that it shall fuse with."""
    sources = elements.producers(model.graph)
    gone: list[Any] = []
    for node in model.graph.node:
        if node.name not in residual:
            continue
        place = residual[node.name]
        last = sources[node.input[place]]
        first = sources[last.input[0]]
        node.input[place] = first.input[0]
        gone += [first, last]
    for node in gone:
        model.graph.node.remove(node)
