"""Generated inputs: random tensors of any datatype, with values that a model may well meet."""

import string
from typing import Any

import numpy as np

from serve.tensors.datatypes import BYTES, Array, Shape, numpy_dtype

_LETTERS = tuple(string.ascii_lowercase)


def random_tensor(
    datatype: str, shape: Shape, rng: np.random.Generator, *, batch: int = 1
) -> Array:
    """A random tensor. A leading -1 in `shape` becomes `batch`, every other -1 becomes 1.

    Floats are in [0, 1), UINT8 and INT8 use their whole range as pixels do, other integers are 0 to
    99 (as indices and token ids they are small), BYTES are words of 3 to 8 letters.
    """
    wanted = numpy_dtype(datatype)
    size = tuple(
        length if length >= 0 else batch if axis == 0 else 1 for axis, length in enumerate(shape)
    )
    if datatype == BYTES:
        return _words(size, rng)
    if wanted.kind == "f":
        return _below_one(rng.random(size), wanted)
    if datatype == "BOOL":
        return rng.integers(0, 2, size).astype(wanted)
    if datatype in ("UINT8", "INT8"):
        limits = np.iinfo(wanted)
        return rng.integers(limits.min, limits.max, size, endpoint=True).astype(wanted)
    return rng.integers(0, 100, size).astype(wanted)


def _below_one(values: Array, wanted: np.dtype[Any]) -> Array:
    """In steps of 1/256, which every float datatype holds exactly, BF16 included."""
    steps: Array = np.floor(values * 256) / 256
    return steps.astype(wanted)


def _words(size: Shape, rng: np.random.Generator) -> Array:
    words = np.empty(size, dtype=object)
    for index in np.ndindex(size):
        words[index] = "".join(rng.choice(_LETTERS, rng.integers(3, 9))).encode()
    return words
