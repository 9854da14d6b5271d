"""How far a right answer may be off: the default rule of each precision, and the user's own.

|a - b| <= atol + rtol·|b|, where atol = RELATIVE · scale unless the user names one. The scale is
that of the output at that place of its last axis, so that boxes in pixels do not hide scores from
0 to 1 in the same tensor: the root mean square over ordinary inputs, times how much larger or
smaller the whole output is in this call, and at least FLOOR of the whole.

| precision | RELATIVE, rtol | what a right conversion does                                      |
|-----------|----------------|-------------------------------------------------------------------|
| FP32      | 1e-4           | another order of adding: 1e-7 to 1e-5, more where it is unsteady   |
| FP16      | 1e-2           | 11 bits: 5e-4 for each rounding                                   |
| INT8      | 3e-1           | 8 bits of a range: a few hundredths, more at single elements      |

Of the request's precision and the source's own, the coarser one rules. Whole numbers and texts must
be equal. Where that is too strict for a right conversion, the source shows it by itself: see
`unsteady.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serve.tensors.datatypes import Array
from serve.tensors.expected_outputs import NOTHING_SAID, Tolerance
from serve.workbench.conversion.request import GENERAL, ConversionRequest, Precision

Reals = NDArray[np.float64]
FLOOR = 0.01
OF_NOTHING = 0.01  # the scale of an output that is zero for all ordinary inputs
_TINY = 1e-30


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """The defaults of one precision.

    `shake`: by which share inputs are moved to see how steady the source is; `room` times what
    moves then is allowed, up to `cap` of the scale. `unjudged`: the share of an output's elements
    that may be too unsteady to be judged. `top1`: the share of the user's samples that must keep
    their highest score. `loose`: what golden cases allow.
    """

    relative: float
    shake: float
    room: float
    cap: float
    unjudged: float
    top1: float
    loose: float


# GPUs multiply in TF32, whose 11 bits are FP16's: golden cases of FP32 are judged there as well.
RULES: Mapping[Precision, PrecisionRule] = MappingProxyType(
    {
        Precision.FP32: PrecisionRule(1e-4, 1e-6, 10, 0.05, 0.1, 1.0, 1e-2),
        Precision.FP16: PrecisionRule(1e-2, 1e-3, 3, 0.1, 0.1, 0.995, 2e-2),
        Precision.INT8: PrecisionRule(3e-1, 2e-2, 3, 0.3, 0.3, 0.98, 4e-1),
    }
)


def rule_of(*precisions: Precision) -> PrecisionRule:
    """The rule of the coarsest."""
    return max((RULES[one] for one in precisions), key=lambda rule: rule.relative)


def tolerance_of(request: ConversionRequest, name: str) -> Tolerance:
    """What the user says about an output."""
    own = request.tolerances.get(name, NOTHING_SAID)
    return own.over(request.tolerances.get(GENERAL, NOTHING_SAID))


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """The size of one output over ordinary inputs: of the whole, and by place of its last axis.

    `places` is None where the last axis has no fixed length. `is_constant`: the same answer for
    all inputs. `is_simplex`: every row is above zero and adds up to 1, as a softmax gives.
    `is_sure`: every element is as good as 0 or 1.
    """

    whole: float
    places: Reals | None = None
    is_constant: bool = False
    is_simplex: bool = False
    is_sure: bool = False

    def scale(self, expected: Reals) -> Reals:
        """The scale of each element of an output, for broadcasting."""
        here = root_mean_square(expected)
        if self.whole == 0:
            return np.asarray(here or OF_NOTHING)
        larger = max(here / self.whole, FLOOR)
        if self.places is None or expected.ndim < 2 or expected.shape[-1] != len(self.places):
            return np.asarray(self.whole * larger)
        return np.asarray(np.maximum(self.places, FLOOR * self.whole) * larger)


NO_NORM = Norm(0.0)


def root_mean_square(numbers: Reals) -> float:
    """Of all that are finite; 0 for none."""
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return 0.0
    largest = float(np.abs(finite).max())
    return largest * float(np.sqrt(np.mean((finite / largest) ** 2))) if largest > _TINY else 0.0


def gap(got: Array, expected: Array) -> Reals:
    """|a - b| of each element: 0 for the same NaN or infinity, infinite where only one is finite.

    Of whole numbers it is their distance as well, of texts 0 or 1.
    """
    if expected.dtype.kind in "OSU" or got.dtype.kind in "OSU":
        return np.asarray(got != expected).astype(np.float64)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(a - b)
    return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), far, np.inf))


def allowed(expected: Array, norm: Norm, rule: PrecisionRule, said: Tolerance) -> Reals:
    """How far each element may be off; below 1 for what must be equal."""
    is_float = expected.dtype.kind == "f"
    if not is_float and (expected.dtype.kind in "OSU" or not said.says_values):
        return np.full(expected.shape, 0.5)
    reals = expected.astype(np.float64)
    relative = rule.relative if is_float else 0.0
    atol = relative * norm.scale(reals) if said.atol is None else np.asarray(said.atol)
    rtol = relative if said.rtol is None else said.rtol
    size = np.where(np.isfinite(reals), np.abs(reals), 0.0)
    return np.maximum(np.broadcast_to(atol + rtol * size, expected.shape), _TINY)
