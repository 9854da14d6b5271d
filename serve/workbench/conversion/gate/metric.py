"""The metric: how often the highest score is at the label, before and after the conversion.

The same rows are asked of both, so what counts are the rows that only one of them gets right. The
interval is that of a difference of paired shares (normal approximation), and 3 / rows on both sides
when no row differs: a drop of 0.5 points needs about a thousand rows to be told from chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.gate.input_search import Runner, ask
from serve.workbench.conversion.gate.probes import USER_ROWS
from serve.workbench.conversion.gate.samples import Labelled

_STEADY = 1.96  # standard deviations, for 95 %
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Metric:
    """Right answers of both. `lost`: right only before; `won`: right only after."""

    output: str
    rows: int
    before: int
    after: int
    lost: int
    won: int

    @property
    def drop(self) -> float:
        """The share of rows that is lost on balance."""
        return (self.before - self.after) / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Where the drop lies with 95 % certainty, for other rows of the same kind."""
        changed = self.lost + self.won
        if not changed:
            return -3 / self.rows, 3 / self.rows
        spread = _STEADY * sqrt(max(changed - (self.lost - self.won) ** 2 / self.rows, 0))
        return self.drop - spread / self.rows, self.drop + spread / self.rows

    def is_kept(self, most: float) -> bool:
        """Whether no more than this share is lost."""
        return self.before - self.after <= most * self.rows + _ROUNDING

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {
            "output": self.output,
            "rows": self.rows,
            "right before": self.before,
            "right after": self.after,
            "only before": self.lost,
            "only after": self.won,
            "drop": self.drop,
            "interval": list(self.interval),
        }

    def __str__(self) -> str:
        right = f"{self.after} of {self.rows} correct"
        if self.before == self.after:
            changed = f", {self.lost} of them different rows" if self.lost else ""
            return f"{right} before and after{changed}"
        points = f"{abs(self.drop) * 100:.2f} pp {'lost' if self.drop > 0 else 'gained'}"
        return f"{right}, {self.before} before ({points})"


def measure(source: Runner, converted: Runner, labelled: Labelled) -> Metric:
    """Ask both for all rows; `samples_invalid` where no output can be held against the labels."""
    output, start = "", 0
    counts = np.zeros(4, dtype=np.int64)  # before, after, lost, won
    per_sample = labelled.labels.size // labelled.samples.count
    for inputs in labelled.samples.calls(USER_ROWS):
        (old, trouble), (new, more) = ask(source, inputs), ask(converted, inputs)
        if old is None or new is None:
            why = f"a model rejects the labelled rows from {start} on: {trouble or more}"
            raise failed("samples_invalid", why)
        rows = _rows(inputs, labelled)
        labels = labelled.labels[start : start + rows]
        output = output or _scores(old, labels, int(labelled.labels.max()))
        before, after = (_predicted(one[output], labels) == labels for one in (old, new))
        counts += [before.sum(), after.sum(), (before & ~after).sum(), (after & ~before).sum()]
        start += rows
    return Metric(output, start * per_sample, *(int(one) for one in counts))


def _rows(inputs: Mapping[str, Array], labelled: Labelled) -> int:
    units = labelled.samples.units
    return next((len(inputs[n]) // unit for n, unit in units.items() if unit), 1)


def _scores(outputs: Mapping[str, Array], labels: Array, largest: int) -> str:
    """The one output that can be held against the labels."""
    found = [name for name, one in outputs.items() if _is_scores(one, labels, largest)]
    if len(found) != 1:
        said = (
            f"{', '.join(found)} could all be the scores"
            if found
            else "no output could be the scores"
        )
        shapes = ", ".join(f"'{name}' {list(one.shape)}" for name, one in outputs.items())
        why = f"{said} for labels of shape {list(labels.shape)} up to {largest}: {shapes}"
        raise failed("samples_invalid", why, hint="pass integer labels that fit one output")
    return found[0]


def _is_scores(array: Array, labels: Array, largest: int) -> bool:
    if array.dtype.kind not in "biuf":
        return False
    if array.dtype.kind == "f" and array.shape[:-1] == labels.shape and array.shape[-1] > 1:
        return largest < array.shape[-1]
    flat = array[..., 0] if array.ndim == labels.ndim + 1 and array.shape[-1] == 1 else array
    return flat.shape == labels.shape and (array.dtype.kind != "f" or largest <= 1)


def _predicted(array: Array, labels: Array) -> Array:
    """The answer for each label: the highest place, the number itself, or above the middle."""
    if array.dtype.kind == "f" and array.shape[:-1] == labels.shape and array.shape[-1] > 1:
        return np.asarray(array.argmax(axis=-1))
    flat = array.reshape(labels.shape)
    if array.dtype.kind != "f":
        return flat.astype(np.int64)
    is_share = bool(((flat >= 0) & (flat <= 1)).all())
    return (flat > (0.5 if is_share else 0.0)).astype(np.int64)
