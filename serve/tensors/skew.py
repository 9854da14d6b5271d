"""The skew check: do a training script's own samples become the tensors that it fed its model?

Every raw sample goes through the recorded preprocessing, and what comes out is held against the
training's tensor, bit for bit. Where they differ, common mistakes (`mistakes.py`) are tried as
changes of the record, first each alone, then two of different steps: a change that makes every row
equal is the cause, and what to write into `preprocessing.json`. Where none does, the change that
comes so close that only rounding differs is told as such.

Two tensors of one sample: the one that the record makes, and the one of the training.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import BF16, Array, from_raw, to_raw
from serve.tensors.mistakes import Mistake, mistakes_of
from serve.tensors.preprocessing.images import numbers_of, pixels_of
from serve.tensors.preprocessing.steps import ImageSteps, Preprocessing, Steps
from serve.tensors.preprocessing.texts import text_tensor
from serve.tensors.skew_samples import Raw, TrainingSamples

# --- two tensors of one sample --------------------------------------------------------------------


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


# --- the skew check -------------------------------------------------------------------------------


ROUNDING = 1e-5  # of the largest value: beyond it a difference is no rounding of float32
MOST_CAUSES = 3
MOST_VERIFIED = 20  # changes that explain one sample, and are tried on all


@dataclass(frozen=True, slots=True)
class Cause:
    """What training does differently. `change`: the fields to set in the record, None to remove.

    With `is_exact` every row becomes equal bit for bit, else only rounding is left.
    """

    what: str
    change: Mapping[str, Any]
    is_exact: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {"what": self.what, "change": dict(self.change), "exact": self.is_exact}


@dataclass(frozen=True, slots=True)
class InputSkew:
    """One input: of `rows` samples, `equal` become the training's tensor bit for bit.

    `first` is the first row that does not. `largest` is the largest absolute difference of all
    rows; None where there is none to tell: texts, other shapes, or values that are not finite.
    """

    name: str
    rows: int
    equal: int
    first: int | None
    largest: float | None
    notes: tuple[str, ...]
    causes: tuple[Cause, ...]

    @property
    def is_skewed(self) -> bool:
        """Whether a row differs."""
        return self.equal < self.rows

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {
            "name": self.name,
            "skewed": self.is_skewed,
            "rows": self.rows,
            "equal": self.equal,
            "first_differing_row": self.first,
            "largest_difference": self.largest,
            "notes": list(self.notes),
            "causes": [cause.to_json() for cause in self.causes],
        }


@dataclass(frozen=True, slots=True)
class SkewReport:
    """What the check has found, input by input."""

    inputs: tuple[InputSkew, ...]

    @property
    def is_skewed(self) -> bool:
        """Whether any input is."""
        return any(one.is_skewed for one in self.inputs)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {"skewed": self.is_skewed, "inputs": [one.to_json() for one in self.inputs]}


def skew(
    preprocessing: Preprocessing,
    samples: Mapping[str, TrainingSamples],
    *,
    most_pixels: float = math.inf,
) -> SkewReport:
    """Hold the samples against the record; `Invalid` when that cannot be done.

    `most_pixels` is how many all pictures of one input may have.
    """
    for name, one in samples.items():
        if name not in preprocessing.inputs:
            known = ", ".join(preprocessing.inputs) or "none"
            raise Invalid(
                f"input '{name[:100]}' has no recorded preprocessing",
                why=f"inputs with preprocessing: {known}",
                try_this="name the samples raw/NAME and tensor/NAME, where NAME is the input",
            )
        one.require_fit(preprocessing.inputs[name])
    return SkewReport(
        tuple(
            _checked(one, preprocessing.inputs[name], most_pixels) for name, one in samples.items()
        )
    )


def _checked(samples: TrainingSamples, steps: Steps, most_pixels: float) -> InputSkew:
    differing: dict[int, float | None] = {}
    pixels = 0
    for row in range(len(samples)):
        raw = samples.opened(row, steps)
        pixels += 0 if isinstance(raw, bytes) else raw.width * raw.height
        if pixels > most_pixels:
            raise Invalid(
                f"the pictures of '{samples.name}' are too large",
                why=f"together they have more than {most_pixels:.0f} pixels",
                try_this="use fewer samples, or servegate model skew --preprocessing FILE",
            )
        with samples.told(row):
            made, trained = comparable(made_by(raw, steps), samples.tensors[row], steps)
        if not is_same(made, trained):
            differing[row] = distance_of(made, trained)
    distances = [distance for distance in differing.values() if distance is not None]
    return InputSkew(
        name=samples.name,
        rows=len(samples),
        equal=len(samples) - len(differing),
        first=min(differing, default=None),
        largest=max(distances, default=0.0) if len(distances) == len(differing) else None,
        notes=tuple(_notes(samples, steps, min(differing, default=0))),
        causes=_causes(samples, steps, _plainest(differing)) if differing else (),
    )


def _plainest(differing: Mapping[int, float | None]) -> int:
    """The row that differs most: on a black picture most mistakes do nothing."""
    return max(differing, key=lambda row: differing[row] or 0.0)


def _notes(samples: TrainingSamples, steps: Steps, row: int) -> Iterator[str]:
    """What is not about values."""
    trained = samples.tensors.dtype
    made = np.dtype(np.float32) if steps.dtype == BF16 else None
    tensor = made_by(samples.opened(row, steps), steps)
    if trained.kind != "O" and trained != (made or tensor.dtype):
        yield f"training has {trained}, the recorded preprocessing produces {steps.dtype}"
    shape = samples.tensors.shape[1:]
    if tensor.shape != shape and tensor.ndim:
        made_shape = list(tensor.shape)
        yield f"training has rows of {list(shape)}, the recorded preprocessing of {made_shape}"


# --- the diagnosis -------------------------------------------------------------------------------


class _Trial:
    """One differing sample, tried with many steps: equal pixels are made once."""

    def __init__(self, samples: TrainingSamples, row: int, steps: Steps) -> None:
        self._raw = samples.opened(row, steps)
        self._trained = samples.tensors[row]
        self._pixels: dict[tuple[object, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<_Trial pixels={len(self._pixels)}>"

    def distance(self, steps: Steps) -> float | None:
        """0 when the sample becomes the training's tensor bit for bit; None when it cannot."""
        try:
            made, trained = comparable(self._make(steps), self._trained, steps)
        except Invalid:  # such as a crop that is larger than the picture
            return None
        if is_same(made, trained):
            return 0.0
        distance = distance_of(made, trained)
        if distance is None:
            return None
        return max(distance / float(np.abs(trained).max(initial=1e-30)), 1e-30)

    def _make(self, steps: Steps) -> Array:
        if not isinstance(steps, ImageSteps) or isinstance(self._raw, bytes):
            return made_by(self._raw, steps)
        key = (steps.color, steps.resize, steps.shortest, steps.resample, steps.crop)
        if key not in self._pixels:
            self._pixels[key] = pixels_of(self._raw, steps)
        return numbers_of(self._pixels[key], steps)


def _causes(samples: TrainingSamples, steps: Steps, row: int) -> tuple[Cause, ...]:
    """The mistakes that explain the difference: all that do so alone, else pairs, else nearly."""
    table = mistakes_of(steps, samples.tensors.shape[1:])
    singles = [(one,) for one in table]
    pairs = [two for two in itertools.combinations(table, 2) if two[0].step != two[1].step]
    trial = _Trial(samples, row, steps)
    left = MOST_VERIFIED
    nearest: tuple[float, tuple[Mistake, ...]] = (ROUNDING, ())
    for candidates in (singles, pairs):
        found: list[Cause] = []
        for mistakes in candidates:
            changed = _changed(steps, mistakes)
            distance = trial.distance(changed)
            if distance == 0.0:
                left -= 1
                if _explains_all(samples, changed):
                    found.append(_cause(steps, mistakes, is_exact=True))
            elif distance is not None and distance < nearest[0]:
                nearest = (distance, mistakes)
            if len(found) == MOST_CAUSES or left <= 0:
                break
        if found:
            return tuple(found)
    as_recorded = trial.distance(steps)
    if as_recorded is not None and as_recorded <= ROUNDING:
        return (Cause("only the rounding of floats differs", {}, is_exact=False),)
    return (_cause(steps, nearest[1], is_exact=False),) if nearest[1] else ()


def _explains_all(samples: TrainingSamples, steps: Steps) -> bool:
    return all(_Trial(samples, row, steps).distance(steps) == 0.0 for row in range(len(samples)))


def _changed(steps: Steps, mistakes: tuple[Mistake, ...]) -> Steps:
    for mistake in mistakes:
        steps = mistake.applied(steps)
    return steps


def _cause(steps: Steps, mistakes: tuple[Mistake, ...], *, is_exact: bool) -> Cause:
    before, after = steps.to_json(), _changed(steps, mistakes).to_json()
    change = {
        key: after.get(key)
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    }
    what = "in training " + ", and ".join(mistake.what for mistake in mistakes)
    return Cause(what + ("" if is_exact else "; rounding differs as well"), change, is_exact)
