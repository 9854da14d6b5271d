"""Looks at the outputs of the source over ordinary inputs: their sizes, and what kind they are."""

from collections.abc import Mapping

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.gate.input_search import Runner
from serve.workbench.conversion.gate.rules import Norm, Reals

LOG = " (log)"  # behind the name of a softmax, for the logarithm of it
_LEAST = 1e-30  # of a probability; below it, float32 loses its digits
_NEAR_ONE = 1e-3
_SURE = 1e-6


class Survey:
    """Gathers outputs; what it keeps does not grow with their number."""

    def __init__(self) -> None:
        self._outputs: dict[str, _Output] = {}

    def __repr__(self) -> str:
        return f"Survey({', '.join(self._outputs)})"

    def add(self, outputs: Mapping[str, Array]) -> None:
        """One more answer of the source."""
        for name, array in outputs.items():
            if array.dtype.kind in "biuf":
                output = self._outputs.setdefault(name, _Output())
                output.add(array)
                if output.is_simplex:
                    self._outputs.setdefault(name + LOG, _Output()).add(logarithm(array))

    def norms(self) -> Mapping[str, Norm]:
        """What was found, by output; texts have none. A softmax has one for its logarithm, too."""
        found = {name: output.norm() for name, output in self._outputs.items()}
        lost = {name + LOG for name, norm in found.items() if not norm.is_simplex}
        return {name: norm for name, norm in found.items() if name not in lost}


class _Output:
    def __init__(self) -> None:
        self.count = 0
        self.squares = 0.0
        self.rows = 0
        self.by_place: Reals | None = None
        self.is_even = True  # its last axis always has the same length
        self.first: float | None = None
        self.is_constant = True
        self.is_simplex = True
        self.is_positive = False  # in one call at least
        self.is_sure = True

    def add(self, array: Array) -> None:
        reals = array.astype(np.float64)
        finite = np.where(np.isfinite(reals), reals, 0.0)
        with np.errstate(over="ignore", under="ignore"):
            squares = np.minimum(finite**2, 1e290)
        self.count += reals.size
        self.squares += float(squares.sum())
        self._look(reals, array.dtype.kind == "f")
        if reals.ndim < 2:
            self.is_even = False
            return
        width = reals.shape[-1]
        if self.by_place is None:
            self.by_place = np.zeros(width)
        if width != len(self.by_place):
            self.is_even = False
            return
        self.by_place += squares.reshape(-1, width).sum(axis=0)
        self.rows += reals.size // max(width, 1)

    def _look(self, reals: Reals, is_float: bool) -> None:
        if reals.size:
            self.first = float(reals.flat[0]) if self.first is None else self.first
            one = np.asarray(self.first)
            self.is_constant &= bool(((reals == one) | (np.isnan(reals) & np.isnan(one))).all())
        self.is_sure &= is_float and bool(
            (np.minimum(np.abs(reals), np.abs(1 - reals)) < _SURE).all()
        )
        if not is_float or reals.ndim < 2 or reals.shape[-1] < 2 or not (reals >= 0).all():
            self.is_simplex = False
        else:
            self.is_simplex &= bool((np.abs(reals.sum(axis=-1) - 1) < _NEAR_ONE).all())
            self.is_positive |= bool((reals > 0).all())

    def norm(self) -> Norm:
        whole = float(np.sqrt(self.squares / self.count)) if self.count else 0.0
        places = None
        if self.is_even and self.by_place is not None and self.rows:
            places = np.sqrt(self.by_place / self.rows)
        is_simplex = self.is_simplex and self.is_positive
        is_constant = self.is_constant and self.count > 1
        return Norm(whole, places, is_constant, is_simplex, self.is_sure)


def with_logarithms(runner: Runner, names: tuple[str, ...]) -> Runner:
    """The runner, which also gives the logarithm of these outputs.

    A softmax that is almost sure hides an error: 0.9999999 and 0.9999998 are close, and the scores
    behind them are not. The logarithm is those scores, up to a constant for each row.
    """
    if not names:
        return runner

    def logged(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        outputs = dict(runner(inputs))
        for name in names:
            if name in outputs and outputs[name].dtype.kind == "f":
                outputs[name + LOG] = logarithm(outputs[name])
        return outputs

    return logged


def logarithm(array: Array) -> Reals:
    """Of probabilities; a NaN stays one, and what float32 hardly holds is the least it does."""
    reals = array.astype(np.float64)
    return np.asarray(np.log(np.where(np.isnan(reals), reals, np.maximum(reals, _LEAST))))
