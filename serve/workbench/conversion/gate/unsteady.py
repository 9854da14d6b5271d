"""How much the source itself moves when its inputs move by less than any rounding matters.

A right conversion adds in another order. Where a model subtracts large numbers, rounds, or picks
the highest, that alone changes the answer, and no gate can tell it from a small fault. So before an
element is refused, the source is asked a few times with inputs moved by a rounding or two: what
moves there by itself gets that much room, up to a share of its scale. With FP32, what moves more
is not judged at all; FP16 and INT8 are simply too coarse for it, and refused.

Bytes cannot be moved by a rounding. Of pictures of bytes a few are changed by one, which is much:
it gives no room. But where that alone changes an answer by a large share of its scale, as the
spread of a picture of one colour does when it is divided by, an element says nothing and is not
judged.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.gate.input_search import Runner, ask
from serve.workbench.conversion.gate.rules import PrecisionRule, Reals, gap, root_mean_square
from serve.workbench.conversion.gate.tallies import JudgedOutput

TRIALS = 6
NUDGED = 0.01  # of the bytes of a picture
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


def nudge(
    source: Runner, inputs: Mapping[str, Array], expected: Mapping[str, Array]
) -> Mapping[str, Reals]:
    """The largest change of each element of floats where some bytes of pictures change by one."""
    moved = {name: np.zeros(one.shape) for name, one in expected.items() if one.dtype.kind == "f"}
    names = [name for name, one in inputs.items() if one.dtype == np.uint8 and one.ndim > 2]
    for trial in range(TRIALS if names else 0):
        rng = np.random.default_rng(trial)
        answer, _ = ask(source, {**inputs, **{name: _nudged(inputs[name], rng) for name in names}})
        for name, most in moved.items():
            if answer is not None and name in answer and answer[name].shape == most.shape:
                moved[name] = np.maximum(most, gap(answer[name], expected[name]))
    return moved


def without_wild(judged: JudgedOutput, nudged: Reals, rule: PrecisionRule) -> JudgedOutput:
    """The same, without a bound where a nudge changes much and there is a number."""
    most = rule.cap * np.broadcast_to(judged.scale, nudged.shape)
    is_wild = (nudged > most) & np.isfinite(judged.got) & (rule.relative < COARSE)
    return replace(judged, bound=np.where(is_wild, np.inf, judged.bound))


def with_room(judged: JudgedOutput, moved: Reals, rule: PrecisionRule) -> JudgedOutput:
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


def _nudged(array: Array, rng: np.random.Generator) -> Array:
    """Some bytes one lower, or one higher where they are zero."""
    chosen = rng.random(array.shape) < NUDGED
    chosen.flat[rng.integers(array.size)] = True
    return np.where(chosen, np.where(array > 0, array - 1, 1), array).astype(array.dtype)


def _shaken(array: Array, shake: float, rng: np.random.Generator) -> Array:
    reals = array.astype(np.float64)
    size = np.maximum(np.abs(np.where(np.isfinite(reals), reals, 0.0)), root_mean_square(reals))
    moved = reals + shake * np.where(size > 0, size, 1.0) * rng.standard_normal(array.shape)
    return np.asarray(moved).astype(array.dtype)
