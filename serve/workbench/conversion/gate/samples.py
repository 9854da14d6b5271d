"""What the user brings: sample inputs, and labels for them, out of .npz files.

An input with a free first dimension brings one row per sample. One with a fixed first dimension of
k brings k rows per sample, and one without dimensions is the same for all samples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serve.core.errors import Invalid
from serve.tensors.archive import read_archive
from serve.tensors.datatypes import Array, cast
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.gate.shapes import has_rows

LABELS = "labels"
MOST_BYTES = 4 << 30  # of the arrays of one file
_MOST_AT_ONCE = 32 << 20  # bytes of inputs in one call


@dataclass(frozen=True, slots=True, eq=False)
class InputSamples:
    """Inputs by name, `count` samples of them. `units`: rows that one sample takes of each input.

    A unit of 0 is an input that is the same for all. `is_joinable`: one call may hold several.
    """

    arrays: Mapping[str, Array]
    units: Mapping[str, int]
    count: int
    is_joinable: bool

    def calls(self, size: int) -> Iterator[Mapping[str, Array]]:
        """All samples, in calls of at most `size` and of not too many bytes."""
        step = self._step(size)
        for start in range(0, self.count, step):
            yield self.part(start, min(start + step, self.count))

    def count_calls(self, size: int) -> int:
        """How many calls that makes."""
        return ceil(self.count / self._step(size))

    def _step(self, size: int) -> int:
        each = sum(array.nbytes for array in self.arrays.values()) // max(self.count, 1)
        return min(size, max(1, _MOST_AT_ONCE // max(each, 1))) if self.is_joinable else 1

    def only(self, places: NDArray[np.int64]) -> "InputSamples":
        """The samples at these places."""
        chosen = {
            name: array[(places[:, None] * unit + np.arange(unit)).ravel()] if unit else array
            for name, array in self.arrays.items()
            for unit in (self.units[name],)
        }
        return replace(self, arrays=MappingProxyType(chosen), count=len(places))

    def part(self, start: int, stop: int) -> Mapping[str, Array]:
        """The samples from `start` up to `stop` as the inputs of one call."""
        return {
            name: array[start * unit : stop * unit] if (unit := self.units[name]) else array
            for name, array in self.arrays.items()
        }


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Samples whose right answers are known: whole numbers, one or several for each sample."""

    samples: InputSamples
    labels: Array


def read_samples(path: Path, signature: ModelSignature) -> InputSamples:
    """The samples in an .npz, with the signature's datatypes; `samples_invalid` otherwise."""
    arrays = dict(_arrays(path))
    if LABELS not in _names(signature):
        arrays.pop(LABELS, None)
    return _samples(arrays, signature)


def read_labelled(path: Path, signature: ModelSignature) -> Labelled:
    """The same with an array `labels` besides, which has as many rows."""
    arrays = dict(_arrays(path))
    if LABELS in _names(signature):
        raise failed("samples_invalid", "the model has an input with the name 'labels'")
    if LABELS not in arrays:
        raise failed("samples_invalid", "the file has no array 'labels'")
    labels = arrays.pop(LABELS)
    samples = _samples(arrays, signature)
    if labels.dtype.kind == "f" and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "biu":
        raise failed("samples_invalid", f"the labels are {labels.dtype}, not integers")
    if not labels.ndim or len(labels) != samples.count:
        why = f"the labels have shape {list(labels.shape)} for {samples.count} samples"
        raise failed("samples_invalid", why)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    return Labelled(samples, labels.astype(np.int64))


def _names(signature: ModelSignature) -> set[str]:
    return {spec.name for spec in signature.inputs}


def _arrays(path: Path) -> Mapping[str, Array]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise failed("samples_invalid", f"{path.name} is larger than {MOST_BYTES >> 30} GiB")
        return read_archive(path.read_bytes(), most=MOST_BYTES)
    except (OSError, Invalid) as error:
        raise failed("samples_invalid", f"{path.name}: {error}") from error


def _samples(arrays: Mapping[str, Array], signature: ModelSignature) -> InputSamples:
    wanted = {spec.name: spec for spec in signature.inputs}
    if set(arrays) != set(wanted):
        lacking, strange = sorted(set(wanted) - set(arrays)), sorted(set(arrays) - set(wanted))
        said = f"lacks {', '.join(lacking)}" if lacking else f"also has {', '.join(strange)}"
        why = f"the file {said}; the inputs are {', '.join(sorted(wanted))}"
        raise failed("samples_invalid", why)
    fitting = {name: _fitting(spec, arrays[name]) for name, spec in wanted.items()}
    units = {name: _unit(spec) for name, spec in wanted.items()}
    counts = {name: len(fitting[name]) // unit for name, unit in units.items() if unit}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} for '{name}'" for name, count in counts.items())
        raise failed("samples_invalid", f"the inputs have different numbers of samples: {said}")
    count = next(iter(counts.values()), 1)
    if not count:
        raise failed("samples_invalid", "the file has no samples")
    is_joinable = has_rows(signature.inputs)
    return InputSamples(MappingProxyType(fitting), MappingProxyType(units), count, is_joinable)


def _unit(spec: ModelTensor) -> int:
    if spec.shape is None:
        return 1
    if not spec.shape:
        return 0
    return 1 if spec.shape[0] == DYNAMIC else max(1, spec.shape[0])


def _fitting(spec: ModelTensor, array: Array) -> Array:
    """The array in the input's datatype, when its shape is one that the input takes."""
    try:
        array = cast(array, spec.datatype, spec.name)
    except Invalid as error:
        raise failed("samples_invalid", str(error)) from error
    if spec.shape is None:
        is_right = array.ndim > 0
    else:
        is_right = array.ndim == len(spec.shape) and all(
            want in (DYNAMIC, have)
            for want, have in zip(spec.shape[1:], array.shape[1:], strict=True)
        )
    if not is_right or (array.ndim and len(array) % max(1, _unit(spec))):
        why = f"'{spec.name}' has shape {list(array.shape)}, the model expects {spec.shape}"
        raise failed("samples_invalid", why)
    return array
