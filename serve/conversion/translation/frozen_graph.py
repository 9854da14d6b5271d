"""One signature of a SavedModel as a frozen graph: weights are constants, calls are inlined."""

import gc
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tf2onnx import tf_loader

from serve.conversion.faults import failed
from serve.conversion.translation.channels import TO_FIRST, TO_LAST
from serve.conversion.translation.order import by_keys
from serve.conversion.translation.source_model import SourceModel

LARGEST = (1 << 31) - 1  # bytes of a protobuf message


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """A GraphDef, its tensors, what the signature calls each, and the lookup tables in it."""

    graph: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    names: Mapping[str, str]
    tables: Mapping[bytes, Any]


def freeze(source: SourceModel, channels_first: Collection[str]) -> Frozen:
    """The graph of the signature, whose tensors are in the order of `source.signature`.

    A function around the signature gives each tensor a place of its own: so an input that is not
    used and an output that is given twice stay, and nothing depends on the order TensorFlow has.
    """
    weights = sum(_size(variable) for variable in source.function.graph.variables)
    if weights > LARGEST:
        raise failed("model_too_large", f"its weights have {weights} bytes, the limit is {LARGEST}")
    traced = _around(source, channels_first)
    count = len(source.signature.inputs)
    inputs = [tensor.name for tensor in traced.inputs[:count]]
    outputs = [tensor.name for tensor in traced.outputs]
    if _has_tables(traced):  # they are looked for in an optimised graph only
        graph, found = tf_loader.from_trackable(source.loaded, traced, inputs, outputs, False)
        tables = {name: by_keys(*table) for name, table in found.items()}
    else:
        graph, tables = _lean(source, traced, inputs, outputs), {}
    names = dict(zip(inputs, (spec.name for spec in source.signature.inputs), strict=True))
    names |= zip(outputs, (spec.name for spec in source.signature.outputs), strict=True)
    return Frozen(graph, tuple(inputs), tuple(outputs), names, tables)


def _lean(source: SourceModel, traced: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The same in a third of the memory: nothing holds all weights twice at once."""
    graph, _ = tf_loader.from_trackable(source.loaded, traced, inputs, outputs, True)
    graph = tf_loader.fix_freezing_errors_part2(graph)
    if graph.ByteSize() > LARGEST:
        raise failed("model_too_large", f"it has {graph.ByteSize()} bytes, the limit is {LARGEST}")
    gc.collect()  # a graph is full of cycles, each with all weights
    with tf.Graph().as_default():
        return tf_loader.tf_optimize(inputs, outputs, graph)


def _has_tables(traced: Any) -> bool:
    graph = traced.graph.as_graph_def()
    functions = (node for function in graph.library.function for node in function.node_def)
    return any("Table" in node.op for node in (*graph.node, *functions))


def _around(source: SourceModel, channels_first: Collection[str]) -> Any:
    """The signature as a function of its inputs by place, giving its outputs by place."""
    keys = [spec.name for spec in source.signature.inputs]
    specs = dict(source.function.structured_input_signature[1])

    def call(*tensors: Any) -> list[Any]:
        given = {
            key: tf.transpose(tensor, TO_LAST) if key in channels_first else tensor
            for key, tensor in zip(keys, tensors, strict=True)
        }
        answer = source.function(**given)
        return [
            tf.identity(answer[spec.name], name=f"output_{place}")
            for place, spec in enumerate(source.signature.outputs)
        ]

    wanted = [
        tf.TensorSpec(
            _first(specs[key].shape) if key in channels_first else specs[key].shape,
            specs[key].dtype,
            name=f"input_{place}",
        )
        for place, key in enumerate(keys)
    ]
    return tf.function(call, autograph=False).get_concrete_function(*wanted)


def _first(shape: Any) -> list[int | None]:
    sizes = shape.as_list()
    return [sizes[axis] for axis in TO_FIRST]


def _size(variable: Any) -> int:
    return int(variable.shape.num_elements() or 0) * int(variable.dtype.size)
