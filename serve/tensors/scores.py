"""Which outputs are scores: those whose every row is one line of two or more floats.

That is `[batch, classes]`, or `[classes]` of a model without batches.
"""

from serve.tensors.datatypes import Array
from serve.tensors.metadata import TensorSpec


def rows_of_scores(array: Array, spec: TensorSpec | None) -> Array | None:
    """The rows of an output, [rows, classes]; None when it is no scores. `spec` may be unknown."""
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or array.shape[-1] < 2:
        return None
    if array.ndim == 1:
        return None if spec is not None and spec.has_batch else array[None]
    has_batch = spec is None or spec.has_batch or array.shape[0] == 1
    return array if has_batch else None
