"""The last step before a tensor is sent: the model's datatype, its batch dimension, its shape."""

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array, cast, datatype_of
from serve.tensors.metadata import TensorSpec


def fitted(array: Array, wanted: TensorSpec, batch: int | None, notes: list[str]) -> Array:
    """The array with the model's datatype, and with a batch dimension where one is wanted.

    `batch` repeats a single row. What people should know is added to `notes`; `Invalid` says what
    does not fit.
    """
    name = wanted.name
    made = cast(array, wanted.datatype, name)
    if made.dtype != array.dtype:
        notes.append(f"{name}: {datatype_of(array, name)} is sent as {wanted.datatype}")
    if wanted.shape[:1] in ((-1,), (1,)) and made.ndim == len(wanted.shape) - 1:
        made = made[np.newaxis]
    if batch is not None:
        made = _repeated(made, wanted, batch)
    fits = made.ndim == len(wanted.shape) and all(
        length in (-1, given) for length, given in zip(wanted.shape, made.shape, strict=True)
    )
    if not fits:
        raise Invalid(
            f"input '{name}' has the shape {list(array.shape)}",
            why=f"the model expects {list(wanted.shape)}"
            + (", the first of which is the batch" if wanted.has_batch else ""),
        )
    return made


def _repeated(array: Array, wanted: TensorSpec, batch: int) -> Array:
    """A batch of `batch` rows out of one row, or the array when it has as many already."""
    if not wanted.has_batch:
        raise Invalid(
            f"a batch of {batch} does not fit input '{wanted.name}'",
            why=f"its shape {list(wanted.shape)} has no batch dimension",
        )
    rows = array.shape[0] if array.ndim else 0
    if rows not in (1, batch):
        raise Invalid(
            f"a batch of {batch} does not fit input '{wanted.name}'", why=f"it has {rows} rows"
        )
    return array if rows == batch else np.repeat(array, batch, axis=0)
