"""The copy of a SavedModel that tf2onnx can read.

TensorFlow inlines a function into its caller unless the function says not to be (`_noinline`) or is
to be compiled by XLA (`_XlaMustCompile`, which `jit_compile=True` sets, and which TensorFlow sets
itself for convolutions in groups). What is not inlined stays a call, which ONNX has not. The copy
says neither; weights and assets are links into the original. What only sessions of TensorFlow 1
have is taken out of it as well, see `sessions.py`.

What only SavedModels of TensorFlow 1 sessions have, in terms that tf2onnx can read.

| in the graph                                   | in the copy                                     |
|------------------------------------------------|-------------------------------------------------|
| reference variables (`VariableV2`), 1's default| constants: inlined, they lose their names       |
| a placeholder with a default, which no input of| its default; callers cannot set it              |
| the signature feeds (`keep_prob`, `training`)  |                                                 |
| `RandomUniform`, where such a default may      | 0.5 everywhere: the source, asked twice, has to |
| switch it off, as dropout's does               | answer the same, whatever is drawn              |
"""

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import convert_to_constants

from serve.workbench.conversion.faults import failed

# --- sessions -------------------------------------------------------------------------------------


_REFERENCES = ("VariableV2", "Variable")
_TABLES = ("HashTableV2", "HashTable", "MutableHashTableV2")
_TRAINED = ("variables", "trainable_variables", "global_step", "train_op", "cond_context")
_MIDDLE = 0.5  # of what RandomUniform draws
_TAG = "serve"


def settle_defaults(graph: Any) -> None:
    """Give placeholders that no signature feeds their defaults, in place. `graph`: a MetaGraphDef.

    A random number that such a default may switch off becomes a constant.
    """
    fed = {
        info.name.partition(":")[0]
        for signature in graph.signature_def.values()
        for info in signature.inputs.values()
    }
    nodes = graph.graph_def.node
    settled = [n for n in nodes if n.op == "PlaceholderWithDefault" and n.name not in fed]
    for node in settled:
        node.op = "Identity"
        kind = node.attr["dtype"].type
        node.attr.clear()
        node.attr["T"].type = kind
    if settled:
        for node in [each for each in nodes if each.op == "RandomUniform"]:
            _fill(node, nodes.add())


def _fill(node: Any, middle: Any) -> None:
    """Make a RandomUniform a Fill with the constant `middle`."""
    kind, index = node.attr["dtype"].type, node.attr["T"].type
    middle.name, middle.op = f"{node.name}/middle", "Const"
    middle.attr["dtype"].type = kind
    middle.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(_MIDDLE, tf.as_dtype(kind)))
    node.op = "Fill"
    node.input.insert(1, middle.name)
    node.attr.clear()
    node.attr["T"].type = kind
    node.attr["index_type"].type = index


def without_references(folder: Path, graph: Any) -> bool:
    """Make the variables of a MetaGraphDef constants, in place, where any is a reference.

    Whether there were any. `folder` has the values. A lookup table is filled by nodes that would be
    lost, so a graph that has both is `unsupported_operator`.
    """
    nodes = graph.graph_def.node
    if graph.HasField("object_graph_def") or all(n.op not in _REFERENCES for n in nodes):
        return False
    table = next((node for node in nodes if node.op in _TABLES), None)
    if table is not None:
        raise failed(
            "unsupported_operator",
            "the graph has a lookup table and reference variables of TensorFlow 1",
            operator=table.op,
            node=table.name,
            hint="call tf.compat.v1.enable_resource_variables() before you build the model",
        )
    wanted = {
        info.name.partition(":")[0]
        for signature in graph.signature_def.values()
        for info in (*signature.inputs.values(), *signature.outputs.values())
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, [_TAG], str(folder))
        frozen = convert_to_constants.convert_variables_to_constants_from_session_graph(
            session, graph.graph_def, sorted(wanted)
        )
    graph.graph_def.CopyFrom(frozen)
    graph.ClearField("saver_def")
    for name in _TRAINED:
        graph.collection_def.pop(name, None)
    return True


# --- the copy of a SavedModel that tf2onnx can read -----------------------------------------------


PREPARED = "prepared"  # the folder in the work folder
FILE = "saved_model.pb"
STRIPPED = (
    "_XlaMustCompile",
    "_XlaCompile",
    "_XlaScope",
    "_XlaSeparateCompiledGradients",
    "_noinline",
    "api_implements",
    "api_preferred_device",
)


def prepare(folder: Path, work: Path) -> Path:
    """The folder of the copy, below `work`."""
    copy = work / PREPARED
    copy.mkdir(parents=True)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / FILE).read_bytes())
    is_frozen = False
    for graph in saved.meta_graphs:
        is_frozen |= without_references(folder, graph)
        settle_defaults(graph)
        _strip(graph.graph_def)
        for saved_object in graph.object_graph_def.nodes:
            if saved_object.WhichOneof("kind") == "function":
                saved_object.function.function_spec.ClearField("jit_compile")
    (copy / FILE).write_bytes(saved.SerializeToString(deterministic=True))
    for beside in sorted(folder.iterdir()):
        if beside.name != FILE and not (is_frozen and beside.name == "variables"):
            (copy / beside.name).symlink_to(beside.resolve())
    return copy


def _strip(graph: Any) -> None:
    for node in graph.node:
        _strip_attributes(node.attr)
    for function in graph.library.function:
        _strip_attributes(function.attr)
        for node in function.node_def:
            _strip_attributes(node.attr)


def _strip_attributes(attributes: Any) -> None:
    for name in STRIPPED:
        if name in attributes:
            del attributes[name]
