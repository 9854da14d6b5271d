"""Runs a loaded ONNX model on groups of requests, and takes tensors from Triton and back.

receive   a request's tensor -> numpy; text becomes str, BF16 its bits in uint16
answer    many requests -> one run over the concatenated batch -> their own outputs
send      numpy -> a tensor of the response
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_bfloat16  # type: ignore[import-not-found]
import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from onnx_session import run_options  # type: ignore[import-not-found]
from onnx_signature import Config, OnnxSignature, OnnxTensor  # type: ignore[import-not-found]

Array = NDArray[Any]
Feeds = dict[str, Array]  # a request's inputs, or its outputs, by name


class WrongTensor(ValueError):
    """A request's tensor cannot be fed to the model."""


def receive(tensor: OnnxTensor, given: Any) -> Array:
    """A request's tensor for ONNX Runtime: text as str, BF16 as uint16."""
    array: Array
    if tensor.data_type == "TYPE_BF16":
        array = onnx_bfloat16.from_triton(given)
    elif tensor.data_type == "TYPE_STRING":
        array = decode(tensor.name, given.as_numpy())
    else:
        array = given.as_numpy()
    return array if tensor.dims else array.reshape(())


def decode(name: str, array: Array) -> Array:
    texts = np.empty(array.size, np.object_)
    for index, item in enumerate(array.reshape(-1)):
        try:
            texts[index] = item.decode()
        except UnicodeDecodeError as error:
            raise WrongTensor(f"input '{name}' is not UTF-8 at element {index}: {error}") from error
    return texts.reshape(array.shape)


def send(tensor: OnnxTensor, array: Array) -> Any:
    if tensor.data_type == "TYPE_BF16":
        return onnx_bfloat16.to_triton(tensor.name, array)
    return pb_utils.Tensor(tensor.name, array)


class Runner:
    """A session that answers a group of requests with one run."""

    def __init__(
        self, session: ort.InferenceSession, config: Config, signature: OnnxSignature
    ) -> None:
        outputs = [entry["name"] for entry in config["output"]]
        self.inputs = {**signature.inputs, **signature.defaulted}
        self.outputs = {name: signature.outputs[name] for name in outputs}
        self.batched = config["max_batch_size"] > 0
        self._output_dims = {entry["name"]: entry["dims"] for entry in config["output"]}
        self._session = session
        self._options = run_options(config)
        tensors = (*self.inputs.values(), *self.outputs.values())
        self._has_bfloat16 = any(tensor.data_type == "TYPE_BF16" for tensor in tensors)

    def answer(self, group: Sequence[Feeds], names: Sequence[str]) -> list[Feeds | Exception]:
        """The outputs of each request; if the group fails as a whole, each request runs alone."""
        try:
            return [*self._answer(group, names)]
        except Exception as error:
            if len(group) == 1:
                return [error]
        return [self.answer([feeds], names)[0] for feeds in group]

    def _answer(self, group: Sequence[Feeds], names: Sequence[str]) -> list[Feeds]:
        if not self.batched:
            return [self._run(feeds, names) for feeds in group]
        feeds = group[0]
        if len(group) > 1:
            feeds = {name: np.concatenate([each[name] for each in group]) for name in feeds}
        outputs = self._run(feeds, names)
        sizes = [len(next(iter(each.values()))) for each in group]
        for name, array in outputs.items():
            if len(array) != sum(sizes):
                raise ValueError(
                    f"output '{name}' has {len(array)} rows for a batch of {sum(sizes)}: "
                    "the model mixes the rows of a batch, set max_batch_size to 0"
                )
        parts = {name: np.split(outputs[name], np.cumsum(sizes[:-1])) for name in names}
        return [{name: parts[name][index] for name in names} for index in range(len(group))]

    def _run(self, feeds: Feeds, names: Sequence[str]) -> Feeds:
        if self._has_bfloat16:
            arrays = self._run_values(feeds, names)
        else:
            arrays = self._session.run(names, feeds, self._options)
        return {
            name: array if self.outputs[name].dims else array.reshape(self._output_dims[name])
            for name, array in zip(names, arrays, strict=True)
        }

    def _run_values(self, feeds: Feeds, names: Sequence[str]) -> list[Array]:
        """A run by OrtValue, which, unlike numpy, has BF16."""
        inputs, outputs = self.inputs, self.outputs
        values = {
            name: onnx_bfloat16.to_value(array)
            if inputs[name].data_type == "TYPE_BF16"
            else ort.OrtValue.ortvalue_from_numpy(array)
            for name, array in feeds.items()
        }
        results = self._session.run_with_ort_values(names, values, self._options)
        return [
            onnx_bfloat16.from_value(value)
            if outputs[name].data_type == "TYPE_BF16"
            else value.numpy()
            for name, value in zip(names, results, strict=True)
        ]
