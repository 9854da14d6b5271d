"""Reads a TensorRT plan: its header, and its tensors where TensorRT itself is installed.

The header begins with the tag `ftrt` and the version of the format; byte 24 to 27 are the version
of TensorRT, as `trtexec --getPlanVersionOnly` reads them. Facts: `tensorrt` (that version, or
empty) and `unread` (why inputs and outputs are not known, or empty). A plan fits one TensorRT
version and one kind of GPU, so mostly only the machine that will serve it can tell more.
"""

from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.tensors.signature import ModelSignature, ModelTensor

TAG = b"ftrt"
HEADER = 28  # bytes
DATATYPES = {"FLOAT": "FP32", "HALF": "FP16", **{n: n for n in ("BF16", "INT8", "INT32", "INT64")}}
DATATYPES |= {"BOOL": "BOOL", "UINT8": "UINT8"}


def read(path: Path) -> ModelSignature:
    """What the plan's header says, and its tensors if they can be known; `Invalid` for no plan."""
    with path.open("rb") as file:
        header = file.read(HEADER)
    if len(header) < HEADER or not header.startswith(TAG):
        raise Invalid(
            f"'{path.name}' is not a TensorRT plan",
            why="it does not start with the header of TensorRT 8.6 or later",
            try_this="use the unmodified output of trtexec --saveEngine",
        )
    is_known = int.from_bytes(header[4:8], "little") == 0
    version = ".".join(str(byte) for byte in header[24:28]) if is_known else ""
    try:
        inputs, outputs = _tensors(path)
        unread = ""
    except (ImportError, RuntimeError, OSError) as error:
        inputs, outputs, unread = (), (), str(error)[:300]
    facts = {"tensorrt": version, "unread": unread}
    return ModelSignature("plan", inputs, outputs, MappingProxyType(facts))


def _tensors(path: Path) -> tuple[tuple[ModelTensor, ...], tuple[ModelTensor, ...]]:
    """Inputs and outputs as TensorRT tells them; RuntimeError when this one cannot read the plan.

    Code that is in a plan stays off: a runtime allows it only when it is told to.
    """
    tensorrt: Any = import_module("tensorrt")
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        raise RuntimeError(f"TensorRT {tensorrt.__version__} on this machine cannot read it")
    found: dict[Any, list[ModelTensor]] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        element = engine.get_tensor_dtype(name).name
        spec = ModelTensor(
            name, DATATYPES.get(element, element.lower()), tuple(engine.get_tensor_shape(name))
        )
        found.setdefault(engine.get_tensor_mode(name), []).append(spec)
    mode = tensorrt.TensorIOMode
    return tuple(found.get(mode.INPUT, ())), tuple(found.get(mode.OUTPUT, ()))
