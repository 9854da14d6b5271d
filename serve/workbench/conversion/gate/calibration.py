"""INT8: which rows calibrate, which rows judge, and whether that verdict is worth anything.

A model that is judged by the rows that set its scales looks right, whatever those rows were.

| the user gives               | calibrates              | judges                                  |
|------------------------------|-------------------------|-----------------------------------------|
| 100 samples or more          | 80 % of them            | the others, at least 50, and the labels |
| 50 labelled rows or more     | all samples, or         | the labels                              |
|                              | generated inputs        |                                         |
| less                         | as above                | refused, unless the user accepts that   |

Rows that are held back come from the same file, so they do not show that the whole file is wrong,
for example scaled twice. Two more checks look at that. Without labels, the samples must reach half
as far as the smallest generated inputs, which are numbers from 0 to 1. And the source's highest
score must not always be at one place if generated inputs give others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.gate.input_search import Runner, ask
from serve.workbench.conversion.gate.samples import InputSamples, Labelled

HELD_BACK = 0.2  # of the samples
LEAST = 50  # rows that a verdict needs
FEWEST = 100  # samples of which some can be held back
REACH = 0.5  # half of the largest value of the family `uniform`
_ROWS = 32  # of one call


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """The samples, divided. `lacks`: why no rows judge that have not calibrated; else empty."""

    calibrating: InputSamples | None
    judging: InputSamples | None
    is_labelled: bool = False
    lacks: str = ""

    @property
    def summary(self) -> str:
        """What calibrated, and what judges."""
        used = self.calibrating.count if self.calibrating else 0
        by = f"{used} samples" if used else "generated inputs"
        held = self.judging.count if self.judging and self.judging is not self.calibrating else 0
        judges = [f"{held} held-back samples"] if held else []
        judges += ["the labelled rows"] if self.is_labelled else []
        return f"calibrated with {by}, verified with {' and '.join(judges) or 'the same rows'}"


def divide(samples: InputSamples | None, labelled: Labelled | None, seed: int) -> Division:
    """Hold samples back for the verdict where there are enough of them."""
    rows = labelled.samples.count if labelled else 0
    if samples is not None and samples.count >= FEWEST:
        held = max(LEAST, ceil(HELD_BACK * samples.count))
        order = np.random.default_rng([seed, 8]).permutation(samples.count)
        kept, back = np.sort(order[held:]), np.sort(order[:held])
        return Division(samples.only(kept), samples.only(back), rows >= LEAST)
    if rows >= LEAST:
        return Division(samples, samples, is_labelled=True)
    given = [f"{samples.count} samples (at least {FEWEST} needed)"] if samples else []
    given += [f"{rows} labelled rows (at least {LEAST} needed)"] if labelled else []
    lacks = " and ".join(given) or "no samples and no labelled rows"
    return Division(samples, samples, lacks=f"there are {lacks}")


def narrow(calibrating: Iterable[Mapping[str, Array]]) -> str:
    """Why the calibration does not cover what the model may meet; empty when it does."""
    largest: dict[str, float] = {}
    for inputs in calibrating:
        for name, array in inputs.items():
            if array.dtype.kind == "f" and array.size:
                here = float(np.abs(array.astype(np.float64)).max())
                largest[name] = max(largest.get(name, 0.0), here)
    for name, reach in largest.items():
        if reach < REACH:
            return (
                f"the samples of '{name}' only reach {reach:.3g}, but generated inputs reach 1, and"
                " INT8 clips values above those of the samples"
            )
    return ""


def same_winner(
    source: Runner, judging: Sequence[InputSamples], generated: Iterable[Mapping[str, Array]]
) -> str:
    """Why the answers to these rows show little: their highest score is always at one place."""
    seen, rows = _winners(source, (call for one in judging for call in one.calls(_ROWS)))
    if rows < LEAST:
        return ""
    others, _ = _winners(source, generated)
    for name, places in seen.items():
        if len(places) == 1 and len(others.get(name, ())) > 1:
            return (
                f"the top class of the source's '{name}' is {min(places)} for all {rows} rows, but"
                " not for generated inputs; check that the samples are scaled as in training"
            )
    return ""


def _winners(
    source: Runner, calls: Iterable[Mapping[str, Array]]
) -> tuple[Mapping[str, set[int]], int]:
    """The places of the highest scores by output, and how many calls' rows were answered."""
    found: dict[str, set[int]] = {}
    rows = 0
    for inputs in calls:
        answer, _ = ask(source, inputs)
        if answer is None:
            continue
        rows += max((len(one) for one in inputs.values() if one.ndim), default=1)
        for name, array in answer.items():
            if array.dtype.kind == "f" and array.ndim > 1 and array.shape[-1] > 1 and array.size:
                found.setdefault(name, set()).update(np.unique(array.argmax(axis=-1)).tolist())
    return found, rows
