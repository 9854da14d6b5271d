"""How much the source itself moves when its inputs move by less than any rounding matters.

A right conversion adds in another order. Where a model subtracts large numbers, rounds, or picks
the highest, that alone changes the answer, and no gate can tell it from a small fault. So before an
element is refused, the source is asked a few times with inputs moved by a rounding or two: what
moves there by itself gets that much room, up to a share of its scale. With FP32, what moves more
is not judged at all; FP16 and INT8 are simply too coarse for it, and refused.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from serve.conversion.gate.exploring import Runner, ask
from serve.conversion.gate.rules import Reals, Rule, gap, root_mean_square
from serve.conversion.gate.tallying import Judged
from serve.tensors.datatypes import Array

TRIALS = 6
COARSE = 1e-3  # a rule for more than this is of a coarse precision


def movement(
    source: Runner, inputs: Mapping[str, Array], expected: Mapping[str, Array], shake: float
) -> Mapping[str, Reals]:
    """The largest change of each element; infinite where it is none of degree.

    `shake`: the share of its own size, or of the whole input's, by which an element is moved. There
    is no movement where no input is of floats.
    """
    names = [name for name, array in inputs.items() if array.dtype.kind == "f" and array.size]
    moved = {name: np.zeros(array.shape) for name, array in expected.items()}
    if not names:
        return moved
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        shaken = {**inputs, **{name: _shaken(inputs[name], shake, rng) for name in names}}
        answer, _ = ask(source, shaken)
        if answer is None:  # it raises beside these inputs: nothing is steady there
            return {name: np.full(array.shape, np.inf) for name, array in expected.items()}
        for name, array in expected.items():
            if name not in answer or answer[name].shape != array.shape:
                moved[name] = np.full(array.shape, np.inf)
            else:
                moved[name] = np.maximum(moved[name], _change(answer[name], array))
    return moved


def with_room(judged: Judged, moved: Reals, rule: Rule) -> Judged:
    """The same, with bounds that have room for the movement."""
    if judged.expected.dtype.kind != "f":
        return replace(judged, bound=np.where(moved > 0, np.inf, judged.bound))
    finite = np.where(np.isfinite(moved), moved, 0.0)
    room = rule.room * (finite if finite.ndim < 2 else np.maximum(finite, _by_row(finite)))
    most = rule.cap * np.broadcast_to(judged.scale, moved.shape)
    wide = np.maximum(judged.bound, np.minimum(room, most))
    is_wild = ~np.isfinite(moved) | ((room > most) & (rule.relative < COARSE))
    return replace(judged, bound=np.where(is_wild, np.inf, wide))


def _by_row(moved: Reals) -> Reals:
    rows = [root_mean_square(row) for row in moved]
    return np.asarray(rows).reshape(-1, *([1] * (moved.ndim - 1)))


def _change(answer: Array, expected: Array) -> Reals:
    change = gap(answer, expected)
    return change if expected.dtype.kind == "f" else np.where(change > 0, np.inf, 0.0)


def _shaken(array: Array, shake: float, rng: np.random.Generator) -> Array:
    reals = array.astype(np.float64)
    size = np.maximum(np.abs(np.where(np.isfinite(reals), reals, 0.0)), root_mean_square(reals))
    moved = reals + shake * np.where(size > 0, size, 1.0) * rng.standard_normal(array.shape)
    return np.asarray(moved).astype(array.dtype)
