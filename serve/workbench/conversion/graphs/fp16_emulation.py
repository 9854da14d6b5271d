"""A model in FP16 as a GPU would answer, for a CPU: what is FP16 in the file is rounded to FP16.

ONNX Runtime has few operators in FP16 on the CPU. It computes the others in FP32 and leaves the
casts between two of them out, so neither rounding nor overflow is seen there. Casts that stand in
the file stay: so here every operator computes in FP32, with a cast to FP16 and back behind it.
Sums inside an operator are FP32, as on tensor cores that accumulate so.
"""

from typing import Any

import onnx
from onnx import TensorProto, helper

from serve.workbench.conversion.graphs import elements

_AS_THEY_ARE = ("Cast", "Constant", "Shape", "Size")


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for comparing only; bodies of If, Loop and Scan, and what they share, stay."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    types = elements.types(elements.inferred(model).graph)
    nodes: list[Any] = []
    wide: dict[str, str] = {}
    for node in map(_copy, list(graph.node)):
        is_kept = elements.is_standard(node, _AS_THEY_ARE) or any(elements.bodies(node))
        if is_kept or node.domain not in elements.STANDARD:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if types.get(name) != TensorProto.FLOAT16:
                continue
            if name not in wide:
                wide[name] = f"{name}/wide"
                nodes.append(_cast(name, wide[name], TensorProto.FLOAT))
            node.input[place] = wide[name]
        nodes.append(node)
        for place, name in enumerate(node.output):
            if types.get(name) == TensorProto.FLOAT16:
                node.output[place] = f"{name}/exact"
                nodes.append(_cast(node.output[place], name, TensorProto.FLOAT16))
    del graph.node[:]
    graph.node.extend(nodes)
    return copy


def _copy(node: Any) -> Any:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _cast(name: str, to: str, kind: int) -> Any:
    return helper.make_node("Cast", [name], [to], name=f"{to}/cast", to=kind)
