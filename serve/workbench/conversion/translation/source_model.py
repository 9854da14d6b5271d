"""One signature of a SavedModel, run by TensorFlow: what a converted model is held against."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from serve.core.errors import ConversionFailed
from serve.tensors.datatypes import Array
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.faults import failed

SERVE = "serve"
DATATYPES = {
    tf.bool: "BOOL",
    tf.float16: "FP16",
    tf.float32: "FP32",
    tf.float64: "FP64",
    tf.bfloat16: "BF16",
    tf.string: "BYTES",
    **{getattr(tf, f"{sign}int{bits}"): f"{sign}int{bits}".upper()
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_UNREGISTERED = "Op type not registered '"


class SourceModel:
    """A runner with the signature of that name. Inputs and outputs are sorted by name."""

    def __init__(self, folder: Path, name: str) -> None:
        self.loaded = load(folder)
        if name not in self.loaded.signatures:
            raise failed("unknown_signature", f"it has no signature '{name}'")
        self.function = self.loaded.signatures[name]
        self._specs: dict[str, Any] = dict(self.function.structured_input_signature[1])
        self.signature = ModelSignature(
            "savedmodel",
            tuple(_spec(key, self._specs[key]) for key in sorted(self._specs)),
            tuple(
                _spec(key, spec) for key, spec in sorted(self.function.structured_outputs.items())
            ),
            MappingProxyType({"signature": name}),
        )

    def __repr__(self) -> str:
        inputs = ", ".join(spec.name for spec in self.signature.inputs)
        return f"<SourceModel {self.signature.facts['signature']} of {inputs}>"

    def __call__(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        given = {name: self._tensor(name, array) for name, array in inputs.items()}
        answer = self.function(**given)
        return MappingProxyType({name: _array(answer[name]) for name in sorted(answer)})

    def _tensor(self, name: str, array: Array) -> Any:
        """A BF16 input comes as float32, as everywhere else in numpy."""
        dtype = self._specs[name].dtype
        if dtype == tf.bfloat16:
            return tf.cast(tf.constant(array), dtype)
        return tf.constant(array, dtype)


def load(folder: Path) -> Any:
    """The SavedModel as TensorFlow loads it; what TensorFlow says of a broken one is a fault."""
    try:
        return tf.saved_model.load(str(folder), tags=[SERVE])
    except Exception as error:
        raise _not_loaded(error) from error


def _not_loaded(error: Exception) -> ConversionFailed:
    words = str(error)
    if _UNREGISTERED in words:
        operator = words.partition(_UNREGISTERED)[2].partition("'")[0]
        return failed(
            "unsupported_operator",
            f"{operator} is not a TensorFlow operator",
            operator=operator,
        )
    if isinstance(error, MemoryError | tf.errors.ResourceExhaustedError):
        return failed("out_of_memory", "TensorFlow cannot load the model")
    line = next(iter(words.strip().splitlines()), "")[:300]
    return failed("source_corrupt", f"TensorFlow fails with {type(error).__name__}: {line}")


def _spec(name: str, spec: Any) -> ModelTensor:
    if not isinstance(spec, tf.TensorSpec | tf.Tensor):
        kind = type(spec).__name__.removesuffix("Spec")
        raise failed("unsupported_input", f"'{name}' is a {kind}", operator=kind, node=name)
    datatype = DATATYPES.get(spec.dtype)
    if datatype is None:
        raise failed(
            "unsupported_datatype",
            f"'{name}' is {spec.dtype.name}, which Triton does not support",
            node=name,
        )
    if spec.shape.rank is None:
        return ModelTensor(name, datatype, None)
    return ModelTensor(
        name, datatype, tuple(DYNAMIC if size is None else size for size in spec.shape.as_list())
    )


def _array(tensor: Any) -> Array:
    if tensor.dtype == tf.string:
        texts = np.empty(tensor.shape, dtype=object)
        texts[...] = tensor.numpy()
        return texts
    if tensor.dtype == tf.bfloat16:
        return np.asarray(tf.cast(tensor, tf.float32).numpy())
    return np.asarray(tensor.numpy())
