"""How much two answers differ, output by output, and the highest scores of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """Two tensors of one shape. Of texts only `equal` is told; empty tensors do not differ.

    `equal`: share of elements that are the same. `max_abs`: the largest |a - b|. `max_rel`: the
    largest |a - b| / max(|a|, |b|), from 0 to 2. `cosine`: of both as one long vector, 1 for two
    zero vectors. `top_1`: share of rows whose highest score is at the same place; None where the
    last axis is no row of scores. NaN on both sides is the same value, on one side an infinite
    difference.
    """

    equal: float
    max_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    top_1: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """One of the highest scores; `label` is empty where there is no text for the index."""

    index: int
    label: str
    value: float


def compare(a: Mapping[str, Array], b: Mapping[str, Array]) -> Mapping[str, TensorDifference]:
    """The difference of each output; `Invalid` when names, shapes or kinds do not match."""
    if set(a) != set(b):
        lacking = ", ".join(sorted(set(a) ^ set(b)))
        raise Invalid("the two responses have different outputs", why=f"only one has {lacking}")
    return MappingProxyType({name: difference(a[name], b[name], name) for name in a})


def difference(a: Array, b: Array, name: str = "") -> TensorDifference:
    """How much two tensors of one shape differ."""
    is_text = a.dtype.kind in "OSU"
    if a.shape != b.shape or is_text != (b.dtype.kind in "OSU"):
        raise Invalid(
            f"output '{name}' cannot be compared",
            why=f"one is {a.dtype} {list(a.shape)}, the other is {b.dtype} {list(b.shape)}",
        )
    if is_text:
        return TensorDifference(equal=_share(a == b))
    left, right = a.astype(np.float64), b.astype(np.float64)
    gap, relative = gaps(left, right)
    return TensorDifference(
        equal=_share(gap == 0),
        max_abs=largest(gap),
        max_rel=largest(relative),
        cosine=cosine(left.ravel(), right.ravel()),
        top_1=_top_1(left, right),
    )


def gaps(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """|a - b|, and the same ÷ max(|a|, |b|): 0 where both are NaN, NaN where one is."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gap = np.where(same, 0.0, np.abs(a - b))
        return gap, np.where(same, 0.0, gap / np.maximum(np.abs(a), np.abs(b)))


def top_k(values: Array, k: int, labels: Sequence[str] = ()) -> list[Score]:
    """The k highest of a row of scores, the highest first; of equal ones the lower index first."""
    scores = np.asarray(values).astype(np.float64).ravel()
    order = np.argsort(-scores, kind="stable")[:k]  # NaN comes last
    return [
        Score(int(index), labels[index] if index < len(labels) else "", float(scores[index]))
        for index in order
    ]


def _share(same: NDArray[np.bool_]) -> float:
    return float(np.mean(same)) if same.size else 1.0


def largest(values: Floats) -> float:
    """The largest; a NaN comes from one side being NaN, or from unequal infinities."""
    return float(np.nan_to_num(values, nan=np.inf, posinf=np.inf).max(initial=0.0))


def cosine(left: Floats, right: Floats) -> float:
    """Of two vectors; NaN when one of them is not finite, 1 for two zero vectors."""
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return float("nan")
    one, other = _direction(left), _direction(right)
    if one is None or other is None:
        return 1.0 if one is other else 0.0
    return float(np.clip(one @ other, -1.0, 1.0))


def _direction(values: Floats) -> Floats | None:
    """The vector with length 1, or None for zero; scaled first, so that no square overflows."""
    scale = np.abs(values).max(initial=0.0)
    if scale == 0:
        return None
    scaled = values / scale
    return np.asarray(scaled / np.linalg.norm(scaled))


def _top_1(left: Floats, right: Floats) -> float | None:
    if left.ndim < 2 or left.shape[-1] < 2:
        return None
    return _share(left.argmax(axis=-1) == right.argmax(axis=-1))
