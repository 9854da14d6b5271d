"""Two tensors of one sample: the one that the record makes, and the one of the training."""

from typing import Any

import numpy as np

from serve.tensors.datatypes import BF16, Array, from_raw, to_raw
from serve.tensors.preprocessing.images import numbers_of, pixels_of
from serve.tensors.preprocessing.steps import ImageSteps, Steps
from serve.tensors.preprocessing.texts import text_tensor
from serve.tensors.skew_samples import Raw


def made_by(raw: Raw, steps: Steps) -> Array:
    """The tensor that the steps make of one sample."""
    if isinstance(steps, ImageSteps):
        assert not isinstance(raw, bytes)
        return numbers_of(pixels_of(raw, steps), steps)
    assert isinstance(raw, bytes)
    return text_tensor(raw, steps)


def comparable(made: Array, trained: Any, steps: Steps) -> tuple[Array, Array]:
    """Both with one dtype: that of the record if it is one of floats.

    A framework casts what it is fed in the same way.
    """
    given: Array = np.asarray(trained, dtype=object if made.dtype.kind == "O" else None)
    if made.dtype.kind == "O":
        return (made.reshape(given.shape) if given.size == 1 else made), given
    if given.dtype.kind == "O":
        return made, given
    with np.errstate(over="ignore"):
        if made.dtype.kind == "f":
            given = given.astype(made.dtype)
        else:
            common = np.result_type(made, given)
            made, given = made.astype(common), given.astype(common)
    if steps.dtype == BF16:
        made, given = (from_raw(to_raw(one, BF16), BF16, one.shape) for one in (made, given))
    return made, given


def is_same(made: Array, trained: Array) -> bool:
    """Whether both are equal bit for bit."""
    if made.shape != trained.shape or made.dtype != trained.dtype:
        return False
    if made.dtype.kind == "O":
        return bool((made == trained).all())
    return made.tobytes() == trained.tobytes()


def distance_of(made: Array, trained: Array) -> float | None:
    """The largest absolute difference; None where there is none that is a number."""
    if made.shape != trained.shape or "O" in (made.dtype.kind, trained.dtype.kind):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(made.astype(np.float64) - trained.astype(np.float64)).max(initial=0))
    return largest if np.isfinite(largest) else None
