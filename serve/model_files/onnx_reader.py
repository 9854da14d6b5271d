"""Reads an ONNX file; weights in other files are left alone. Runs in the child process only.

Facts: `opset` (domain to version, `ai.onnx` for the default one), `ir_version`, `producer`,
`operators` (with their domain unless it is the default one), `external_data` (the files that hold
weights, as written), `defaulted` (inputs that have a value in the file), and `checker`: what the
ONNX package finds wrong with the graph.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from serve.core.errors import Invalid
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor

LARGEST = (1 << 31) - 1  # bytes of a protobuf message
LARGEST_CHECKED = 1 << 29  # bytes; the checker parses the file once more
DEFAULT_DOMAIN = "ai.onnx"
DATATYPES = {
    "FLOAT": "FP32",
    "DOUBLE": "FP64",
    "FLOAT16": "FP16",
    "BFLOAT16": "BF16",
    "STRING": "BYTES",
    **{name: name for name in ("BOOL", "INT8", "INT16", "INT32", "INT64")},
    **{name: name for name in ("UINT8", "UINT16", "UINT32", "UINT64")},
}


def read(path: Path) -> ModelSignature:
    """The file's inputs, outputs and facts; `Invalid` when it is no ONNX model."""
    size = path.stat().st_size
    if size > LARGEST:
        raise _broken(path, f"it has {size} bytes, and an ONNX file can have at most 2 GiB")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise _broken(path, "it is truncated, or not an ONNX file") from error
    graph = model.graph
    if not model.ir_version or not graph.output or not model.opset_import:
        raise _broken(path, "it contains no graph")
    weights = {each.name for each in graph.initializer}
    weights |= {each.values.name for each in graph.sparse_initializer}
    required = tuple(_spec(each) for each in graph.input if each.name not in weights)
    defaulted = [_spec(each) for each in graph.input if each.name in weights]
    outputs = tuple(_spec(each) for each in graph.output)
    # Before IR 4 every weight had to be an input, and none could be given by a caller.
    facts = _facts(model, defaulted if model.ir_version >= 4 else ())
    del model, graph
    facts["checker"] = _check(path, size, facts["external_data"])
    return ModelSignature("onnx", required, outputs, MappingProxyType(facts))


def _facts(model: Any, defaulted: Iterable[ModelTensor]) -> dict[str, Any]:
    bodies = [model.graph, *model.functions]
    nodes = [node for body in bodies for part in _parts(body) for node in part.node]
    own = {(function.domain, function.name) for function in model.functions}
    return {
        "opset": {each.domain or DEFAULT_DOMAIN: each.version for each in model.opset_import},
        "ir_version": model.ir_version,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "operators": sorted(
            {_operator(node) for node in nodes if (node.domain, node.op_type) not in own}
        ),
        "external_data": sorted({name for body in bodies for name in _external(body)}),
        "defaulted": [spec.to_json() for spec in defaulted],
    }


def _operator(node: Any) -> str:
    own = node.domain in ("", DEFAULT_DOMAIN)
    return str(node.op_type if own else f"{node.domain}.{node.op_type}")


def _parts(body: Any) -> Iterator[Any]:
    """A graph or function, and all graphs inside of it."""
    yield body
    for node in body.node:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _parts(graph)


def _external(body: Any) -> Iterator[str]:
    """The files that weights lie in, as they are written."""
    for part in _parts(body):
        tensors = [attribute.t for node in part.node for attribute in node.attribute]
        tensors += getattr(part, "initializer", ())  # a function has none
        for tensor in tensors:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                yield from (each.value for each in tensor.external_data if each.key == "location")


def _spec(value: Any) -> ModelTensor:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        word = str(kind or "value of no type").removesuffix("_type").replace("_", " ")
        return ModelTensor(value.name, word, None)
    tensor = value.type.tensor_type
    element = onnx.TensorProto.DataType.Name(tensor.elem_type)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(_size(dimension) for dimension in tensor.shape.dim)
    return ModelTensor(value.name, DATATYPES.get(element, element.lower()), shape)


def _size(dimension: Any) -> int:
    is_known = dimension.WhichOneof("value") == "dim_value" and dimension.dim_value >= 0
    return int(dimension.dim_value) if is_known else DYNAMIC


def _check(path: Path, size: int, external: list[str]) -> str:
    """What the checker says, in one line; empty when it finds nothing, or cannot look."""
    if size > LARGEST_CHECKED or any(not (path.parent / name).is_file() for name in external):
        return ""
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        return str(error).strip().partition("\n")[0][:300]
    return ""


def _broken(path: Path, why: str) -> Invalid:
    return Invalid(f"'{path.name}' is not an ONNX model", why=why, try_this="export it again")
