"""An ONNX model in ONNX Runtime on the CPU, and the two judges of a graph that was changed.

It runs in one thread, so that it is deterministic.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime

from serve.tensors.datatypes import Array
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.graphs.blame import blaming

_TYPES = {
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
    "tensor(bool)": "BOOL",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}".upper()
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_ERRORS_ONLY = 3


class OnnxModel:
    """A runner; `cannot_load` when ONNX Runtime refuses the model. Its signature is its own."""

    def __init__(self, model: bytes) -> None:
        self._session = session(model)
        self.signature = ModelSignature(
            "onnx",
            tuple(_spec(each) for each in self._session.get_inputs()),
            tuple(_spec(each) for each in self._session.get_outputs()),
        )
        self._outputs = [spec.name for spec in self.signature.outputs]
        self._texts = {spec.name for spec in self.signature.inputs if spec.datatype == "BYTES"}

    def __repr__(self) -> str:
        inputs = ", ".join(spec.name for spec in self.signature.inputs)
        return f"<OnnxModel of {inputs}>"

    def __call__(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        given = {
            name: _texts(array) if name in self._texts else np.asarray(array)
            for name, array in inputs.items()
        }
        answer = self._session.run(self._outputs, given)
        return MappingProxyType(
            {name: _array(array) for name, array in zip(self._outputs, answer, strict=True)}
        )


def session(model: bytes) -> Any:
    """The model in ONNX Runtime; `cannot_load` names the node where ONNX Runtime does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = _ERRORS_ONLY
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise blaming("cannot_load", error, model) from error


def check(model: onnx.ModelProto) -> None:
    """Ask the checker of the ONNX package, then ONNX Runtime; `invalid_graph` or `cannot_load`."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise blaming("invalid_graph", error, model) from error
    session(model.SerializeToString())


def _spec(value: Any) -> ModelTensor:
    shape = tuple(size if isinstance(size, int) else DYNAMIC for size in value.shape)
    return ModelTensor(value.name, _TYPES.get(value.type, value.type), shape)


def _texts(array: Array) -> Array:
    """ONNX Runtime takes texts as `str`; other bytes than UTF-8 it cannot be given at all."""
    texts = np.empty(array.shape, dtype=object)
    texts.ravel()[:] = [
        each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each)
        for each in array.ravel().tolist()
    ]
    return texts


def _array(array: Any) -> Array:
    found = np.asarray(array)
    if found.dtype.kind not in "OSU":
        return found
    texts = np.empty(found.shape, dtype=object)
    texts.ravel()[:] = [
        each.encode() if isinstance(each, str) else each for each in found.ravel().tolist()
    ]
    return texts
