"""Counts how far one output is off, call by call: what it keeps does not grow with the calls."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.gate.rules import (
    NO_NORM,
    Norm,
    PrecisionRule,
    Reals,
    allowed,
    gap,
    root_mean_square,
    tolerance_of,
)
from serve.workbench.conversion.report import OutputError
from serve.workbench.conversion.request import ConversionRequest

EDGES = tuple(range(-9, 1))  # powers of ten, of error / scale
LARGEST = 1e300  # instead of infinity, which is no JSON
_MARGIN = 2.0  # two scores may both be off by what is allowed
_TIE = 0.01  # and by no more of the scale than this, however coarse the precision is


@dataclass(frozen=True, slots=True, eq=False)
class JudgedOutput:
    """One output in one call: what was given, how far off it is, and how far it may be.

    An infinite `bound` is that of an element which is not judged, whatever was given there.
    """

    got: Array
    expected: Array
    gaps: Reals
    bound: Reals
    scale: Reals

    @classmethod
    def of(
        cls,
        name: str,
        got: Array,
        expected: Array,
        *,
        norms: Mapping[str, Norm],
        rule: PrecisionRule,
        request: ConversionRequest,
    ) -> "JudgedOutput":
        """Two answers of one shape as the output `name`, by the plain rule."""
        norm = norms.get(name, NO_NORM)
        bound = allowed(expected, norm, rule, tolerance_of(request, name))
        is_float = expected.dtype.kind == "f"
        scale = norm.scale(expected.astype(np.float64)) if is_float else np.asarray(1.0)
        return cls(got, expected, gap(got, expected), bound, scale)

    @property
    def _shares(self) -> Reals:
        """Of what is allowed, for each element; 0 where nothing is judged."""
        is_judged = np.isfinite(self.bound)
        gaps = np.where(is_judged, self.gaps, 0.0)
        return np.asarray(gaps / np.where(is_judged, self.bound, 1.0))

    @property
    def excess(self) -> float:
        """The largest gap over what is allowed; 0 for nothing at all."""
        return float(self._shares.max(initial=0.0))

    @property
    def place(self) -> tuple[int, ...]:
        """Where that is."""
        index = np.unravel_index(int(self._shares.argmax()), self.gaps.shape)
        return tuple(int(one) for one in index)

    @property
    def is_lost(self) -> bool:
        """Whether the worst element is NaN or infinite, and was not."""
        if self.expected.dtype.kind != "f" or not self.gaps.size:
            return False
        place = self.place
        return bool(np.isfinite(self.expected[place]) and not np.isfinite(self.got[place]))

    @property
    def unjudged(self) -> int:
        """How many elements are too unsteady."""
        return int(np.isinf(self.bound).sum())


class OutputTally:
    """One output over all calls of a step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.excess = 0.0
        self.elements = 0
        self.unjudged = 0
        self.worst_input = ""
        self._worst = (0.0, 0.0, 0.0)  # relative, gap, scale
        self._sum = 0.0
        self._counts = np.zeros(len(EDGES) + 1, dtype=np.int64)
        self._rows, self._same = 0, 0

    def __repr__(self) -> str:
        return f"Tally({self.name}, excess {self.excess:.3g}, {self.elements} elements)"

    def add(self, one: JudgedOutput, label: str) -> None:
        """One call; `label` says which inputs it had."""
        whole = root_mean_square(_reals(one.expected)) or float(np.max(one.scale, initial=0.0))
        judged = np.where(np.isinf(one.bound), 0.0, np.minimum(one.gaps, LARGEST))
        self.elements += judged.size
        self.unjudged += one.unjudged
        self._sum += float(np.minimum(judged, LARGEST / max(judged.size, 1)).sum())
        with np.errstate(divide="ignore", over="ignore"):
            relative = np.minimum(judged / np.broadcast_to(one.scale, judged.shape), LARGEST)
            exponents = np.log10(relative)
        self._counts += np.bincount(
            np.searchsorted(EDGES, exponents.ravel(), side="right"), minlength=len(EDGES) + 1
        )
        worst = float(judged.max(initial=0.0))
        share = min(worst / whole, LARGEST) if whole else 0.0
        if share >= self._worst[0]:
            self._worst = (share, worst, whole)
        if (excess := min(one.excess, LARGEST)) > self.excess:
            self.excess, self.worst_input = excess, label
        self._count_winners(one)

    def _count_winners(self, one: JudgedOutput) -> None:
        """Rows whose highest score moved to a place that was about as high do not count."""
        expected = one.expected
        if expected.dtype.kind != "f" or expected.ndim < 2 or expected.shape[-1] < 2:
            return
        width = expected.shape[-1]
        wanted = _reals(expected).reshape(-1, width)
        winners = one.got.reshape(-1, width).argmax(axis=-1)
        rows = np.arange(len(wanted))
        tops = wanted.argmax(axis=-1)
        bound = np.minimum(one.bound, _TIE * one.scale).reshape(-1, width)
        with np.errstate(invalid="ignore"):
            lost = wanted[rows, tops] - wanted[rows, winners]
            near = lost <= np.maximum(bound[rows, tops], bound[rows, winners]) * _MARGIN
        self._rows += len(rows)
        self._same += int((near | (tops == winners)).sum())

    @property
    def top1(self) -> float | None:
        """The share of rows with the same highest score; None where there are no rows of scores."""
        return self._same / self._rows if self._rows else None

    @property
    def rows(self) -> int:
        """How many rows of scores there were."""
        return self._rows

    def error(self) -> OutputError:
        """What the report says."""
        relative, worst, scale = self._worst
        return OutputError(
            self.name,
            self.elements,
            scale,
            worst,
            min(self._sum / self.elements, LARGEST) if self.elements else 0.0,
            relative,
            self.excess,
            self.top1,
            EDGES,
            tuple(int(count) for count in self._counts),
        )


def _reals(array: Array) -> Reals:
    if array.dtype.kind in "OSU":
        return np.ones(array.shape)
    return array.astype(np.float64)
