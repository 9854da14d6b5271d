"""Reads the signatures of a SavedModel out of saved_model.pb, without TensorFlow.

Field numbers are those of TensorFlow's saved_model.proto, meta_graph.proto, tensor_shape.proto and
types.proto. Facts: `signature` (the name of the one whose tensors are the signature's; empty when
there are several and none is `serving_default`), `signatures` (all of them), `tags`, `tensorflow`
(the version that wrote it).
"""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import BadRequest, Invalid
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.wire.protobuf import fields

SERVE, SERVING_DEFAULT, INITIALIZER = "serve", "serving_default", "__saved_model_init_op"
_META_GRAPH = 2  # of SavedModel
_META_INFO, _SIGNATURE = 1, 5  # of MetaGraphDef
_TAG, _TENSORFLOW = 4, 5  # of MetaInfoDef
_INPUT, _OUTPUT = 1, 2  # of SignatureDef
_DTYPE, _SHAPE, _SPARSE, _COMPOSITE = 2, 3, 4, 5  # of TensorInfo
_DIM, _UNKNOWN_RANK = 2, 3  # of TensorShapeProto
DATATYPES = {
    1: "FP32",
    2: "FP64",
    3: "INT32",
    4: "UINT8",
    5: "INT16",
    6: "INT8",
    7: "BYTES",
    9: "INT64",
    10: "BOOL",
    14: "BF16",
    17: "UINT16",
    19: "FP16",
    22: "UINT32",
    23: "UINT64",
}
OTHERS = {8: "complex64", 18: "complex128", 20: "resource", 21: "variant"}


def read(path: Path) -> ModelSignature:
    """The signatures of the graph with the tag `serve`; `Invalid` when there are none."""
    try:
        graphs = [_Graph(each) for each in _messages((path / "saved_model.pb").read_bytes(), 2)]
    except (BadRequest, UnicodeDecodeError) as error:
        raise _broken(path, "saved_model.pb is truncated, or not a SavedModel") from error
    graph = next((each for each in graphs if SERVE in each.tags), None)
    if graph is None:
        tags = sorted({tag for each in graphs for tag in each.tags})
        raise _broken(path, f"no graph has the tag '{SERVE}' (tags: {', '.join(tags) or 'none'})")
    if not graph.signatures:
        raise _broken(path, "it has no signature", "save it with signatures=…")
    chosen = SERVING_DEFAULT if SERVING_DEFAULT in graph.signatures else ""
    if len(graph.signatures) == 1:
        chosen = next(iter(graph.signatures))
    inputs, outputs = graph.signatures.get(chosen, ((), ()))
    facts: dict[str, Any] = {
        "signature": chosen,
        "signatures": {
            name: {
                "inputs": [spec.to_json() for spec in given],
                "outputs": [spec.to_json() for spec in taken],
            }
            for name, (given, taken) in sorted(graph.signatures.items())
        },
        "tags": sorted(graph.tags),
        "tensorflow": graph.tensorflow,
    }
    return ModelSignature("savedmodel", inputs, outputs, MappingProxyType(facts))


class _Graph:
    """Tags, writer and signatures of one MetaGraphDef."""

    def __init__(self, message: bytes) -> None:
        self.tags: set[str] = set()
        self.tensorflow = ""
        self.signatures: dict[str, tuple[tuple[ModelTensor, ...], tuple[ModelTensor, ...]]] = {}
        for number, value in fields(message):
            if number == _META_INFO and isinstance(value, bytes):
                self.tags |= {tag.decode() for tag in _messages(value, _TAG)}
                self.tensorflow = b"".join(_messages(value, _TENSORFLOW)).decode()
            elif number == _SIGNATURE and isinstance(value, bytes):
                name, signature = _entry(value)
                if name != INITIALIZER:
                    self.signatures[name] = (
                        tuple(sorted(_specs(signature, _INPUT), key=lambda spec: spec.name)),
                        tuple(sorted(_specs(signature, _OUTPUT), key=lambda spec: spec.name)),
                    )


def _specs(signature: bytes, field: int) -> Iterator[ModelTensor]:
    for entry in _messages(signature, field):
        name, tensor = _entry(entry)
        datatype, shape = "unknown", None
        for number, value in fields(tensor):
            if number == _DTYPE and isinstance(value, int):
                datatype = DATATYPES.get(value) or OTHERS.get(value, f"type {value}")
            elif number == _SHAPE and isinstance(value, bytes):
                shape = _shape(value)
        kinds = {number for number, _ in fields(tensor)}
        if kinds & {_SPARSE, _COMPOSITE}:
            datatype = "sparse tensor" if _SPARSE in kinds else "composite tensor"
        yield ModelTensor(name, datatype, shape)


def _shape(message: bytes) -> tuple[int, ...] | None:
    """The sizes; a scalar has none, None stands for an unknown number of dimensions."""
    sizes: list[int] = []
    for number, value in fields(message):
        if number == _UNKNOWN_RANK and value:
            return None
        if number == _DIM and isinstance(value, bytes):
            size = next((each for key, each in fields(value) if key == 1), 0)
            sizes.append(size if isinstance(size, int) and size < 1 << 62 else DYNAMIC)
    return tuple(sizes)


def _entry(entry: bytes) -> tuple[str, bytes]:
    """Key and value of a map's entry."""
    key, value = b"", b""
    for number, found in fields(entry):
        if number == 1 and isinstance(found, bytes):
            key = found
        elif number == 2 and isinstance(found, bytes):
            value = found
    return key.decode(), value


def _messages(message: bytes, field: int) -> Iterator[bytes]:
    for number, value in fields(message):
        if number == field and isinstance(value, bytes):
            yield value


def _broken(path: Path, why: str, try_this: str = "") -> Invalid:
    return Invalid(f"the SavedModel '{path.name}' cannot be read", why=why, try_this=try_this)
