"""What a graph is made of: its nodes, also inner ones, its constants, and the type of each tensor.

A body is the graph inside of an If, Loop or Scan. It sees the tensors of the graph around it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import onnx
from onnx import TensorProto

STANDARD = ("", "ai.onnx")  # names of the domain of ONNX's own operators
# The operators in which the time goes: of a value and its weights, or of two values.
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})

Types = Mapping[str, int]  # of tensors: `TensorProto.FLOAT` and so on; what is unknown is missing


def is_standard(node: Any, operators: Collection[str]) -> bool:
    """Whether it is one of these operators of ONNX itself, not a namesake in another domain."""
    return node.op_type in operators and node.domain in STANDARD


def called(node: Any) -> str:
    """What a node is called: its name, or else the tensor that it gives."""
    return str(node.name or next((name for name in node.output if name), node.op_type))


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of an attribute, as Python has it."""
    for each in node.attribute:
        if each.name == name:
            return onnx.helper.get_attribute_value(each)
    return default


def bodies(node: Any) -> Iterator[Any]:
    """The graphs inside of a node."""
    for each in node.attribute:
        if each.HasField("g"):
            yield each.g
        yield from each.graphs


def graphs(graph: Any) -> Iterator[Any]:
    """The graph and all bodies in it, outer ones first."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def captured(node: Any) -> frozenset[str]:
    """The tensors of the graph around it that the bodies of a node use."""
    found: set[str] = set()
    for body in bodies(node):
        own = {each.name for each in (*body.input, *body.initializer)}
        own |= {name for inner in body.node for name in inner.output}
        used = {name for inner in body.node for name in (*inner.input, *captured(inner))}
        used |= {each.name for each in body.output}
        found |= used - own
    return frozenset(found)


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which as many tensors as possible have a type and a shape."""
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def types(graph: Any, outer: Types | None = None) -> dict[str, int]:
    """The element types of a graph's tensors, after `inferred`; with those of the graph around."""
    found = dict(outer or {})
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type:
            found[value.name] = value.type.tensor_type.elem_type
    found |= {each.name: each.data_type for each in graph.initializer}
    return found


def constants(graph: Any) -> dict[str, TensorProto]:
    """The tensors that no caller can change: initialisers, and nodes Constant with a tensor."""
    given = {each.name for each in graph.input}
    found = {each.name: each for each in graph.initializer if each.name not in given}
    for node in graph.node:
        value = attribute(node, "value") if is_standard(node, ("Constant",)) else None
        if isinstance(value, TensorProto):
            found[node.output[0]] = value
    return found


def producers(graph: Any) -> dict[str, Any]:
    """The node that gives each tensor."""
    return {name: node for node in graph.node for name in node.output if name}


def used(graph: Any) -> set[str]:
    """All tensors that something in the graph or its bodies takes, and its outputs."""
    found = {each.name for each in graph.output}
    for node in graph.node:
        found |= {*node.input, *captured(node)}
    return found


def drop_unused(graph: Any) -> None:
    """Take out, in place, constants that nothing uses."""
    alive = used(graph)
    weights = [each for each in graph.initializer if each.name in alive]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    nodes = [
        node
        for node in graph.node
        if not is_standard(node, ("Constant",)) or alive.intersection(node.output)
    ]
    del graph.node[:]
    graph.node.extend(nodes)


def drop_unused_domains(model: onnx.ModelProto) -> None:
    """Take out, in place, the imports of domains that no node is of: TensorRT stumbles on them."""
    parts = [part for body in (model.graph, *model.functions) for part in graphs(body)]
    needed = {node.domain for part in parts for node in part.node}
    kept = [each for each in model.opset_import if each.domain in STANDARD or each.domain in needed]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def opset(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators; 0 when the model imports none."""
    return max((each.version for each in model.opset_import if each.domain in STANDARD), default=0)
