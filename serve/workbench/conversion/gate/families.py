"""The families of generated inputs: what their values are, for each datatype.

| family    | floats            | whole numbers     | truth values | texts              |
|-----------|-------------------|-------------------|--------------|--------------------|
| `normal`  | mean 0, spread 1  | 0 to 99           | random       | words, or numerals |
| `uniform` | 0 to 1            | all that are taken| random       | numerals           |
| `pixels`  | 0, 1, … 255       | as `uniform`      | random       | words              |
| `small`   | spread 0.01       | 0 and 1           | random       | single letters     |
| `zeros`   | 0                 | 0                 | false        | empty              |
| `ones`    | 1                 | 1                 | true         | "1"                |
| `large`   | spread 100        | all that are taken| true         | words of 40 letters|
| `huge`    | spread 10 000     | the largest taken | true         | words              |

`pixels` stand for themselves only with pictures of floats. Larger floats than `huge` are of no
use: squares of them overflow in one order of adding and not in another, both of which are right.
"""

import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.tensors.datatypes import BYTES, Array, Shape, numpy_dtype
from serve.tensors.signature import ModelTensor

ORDINARY = ("normal", "uniform", "pixels")
CALIBRATING = ("normal", "uniform")  # also the values for models of a coarse precision
EDGES = ("zeros", "ones", "small", "large", "huge")
WORDS, NUMERALS = "words", "numerals"
_SPREADS = MappingProxyType({"normal": 1.0, "small": 0.01, "large": 1e2, "huge": 1e4})
_CONSTANT = MappingProxyType({"zeros": 0, "ones": 1})
_LETTERS = tuple(string.ascii_lowercase)
_SMALL_ID = 99


def values(
    spec: ModelTensor,
    shape: Shape,
    family: str,
    rng: np.random.Generator,
    *,
    limits: Mapping[str, int],
    texts: str = WORDS,
) -> Array:
    """One tensor. `limits`: the largest whole number that an input takes, for those that have any.

    `texts`: what the model reads: any words, or only numerals.
    """
    wanted = numpy_dtype(spec.datatype)
    if spec.datatype == BYTES:
        return _texts(shape, family, texts, rng)
    if wanted.kind == "b":
        is_random = family in (*ORDINARY, "small")
        one = rng.random(shape) < 0.5 if is_random else np.full(shape, family != "zeros")
        return np.asarray(one).astype(wanted)
    if wanted.kind == "f":
        return _floats(shape, family, wanted, rng)
    return _whole(shape, family, limits.get(spec.name, 1), rng).astype(wanted)


def _floats(shape: Shape, family: str, wanted: np.dtype[Any], rng: np.random.Generator) -> Array:
    if family in _CONSTANT:
        return np.full(shape, _CONSTANT[family], wanted)
    if family == "uniform":
        made: Array = rng.random(shape)
    elif family == "pixels":
        made = rng.integers(0, 256, shape)
    else:
        made = rng.standard_normal(shape) * _SPREADS[family]
    most = float(np.finfo(wanted).max)
    return np.clip(made, -most, most).astype(wanted)


def _whole(shape: Shape, family: str, limit: int, rng: np.random.Generator) -> Array:
    if family in _CONSTANT:
        return np.full(shape, min(_CONSTANT[family], limit))
    if family == "huge":
        return np.full(shape, limit)
    most = {"normal": _SMALL_ID, "small": 1}.get(family, limit)
    return rng.integers(0, min(most, limit), shape, endpoint=True)


def _texts(shape: Shape, family: str, kind: str, rng: np.random.Generator) -> Array:
    made = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        if family in _CONSTANT:
            word = "" if family == "zeros" and kind == WORDS else str(_CONSTANT[family])
        elif kind == NUMERALS or family == "uniform":
            word = str(rng.integers(0, 1000))
        else:
            length = {"small": 1, "large": 40}.get(family, int(rng.integers(3, 9)))
            word = "".join(rng.choice(_LETTERS, length))
        made[place] = word.encode()
    return made
