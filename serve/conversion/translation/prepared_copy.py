"""The copy of a SavedModel that tf2onnx can read.

TensorFlow inlines a function into its caller unless the function says not to be (`_noinline`) or is
to be compiled by XLA (`_XlaMustCompile`, which `jit_compile=True` sets, and which TensorFlow sets
itself for convolutions in groups). What is not inlined stays a call, which ONNX has not. The copy
says neither; weights and assets are links into the original. What only sessions of TensorFlow 1
have is taken out of it as well, see `sessions.py`.
"""

from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2

from serve.conversion.translation.sessions import settle_defaults, without_references

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
