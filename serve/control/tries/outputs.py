"""Outputs and their differences as people look at them: as much as a page can show, no more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from serve.control.tries.records import OutputDifference, OutputLine, Top
from serve.core.errors import Invalid
from serve.tensors.comparison import Score, difference
from serve.tensors.datatypes import Array, to_json
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_comparison import agreement
from serve.tensors.output_kinds import Declared, DeclaredOutput, fitting
from serve.tensors.output_values import described, scored_rows

MOST_VALUES = 1000  # elements of an output
MOST_ROWS = 20  # whose highest scores are told
_LONGEST_TEXT = 1000  # bytes of one element
_MOST_DIFFERING = 100  # rows that are named


def output_line(
    name: str,
    outputs: Mapping[str, Array],
    datatype: str,
    *,
    spec: TensorSpec | None,
    declared: DeclaredOutput | None,
    labels: Sequence[str],
    scores: int,
) -> OutputLine:
    """One of the outputs; `scores` is how many of the highest of each row are told."""
    array = outputs[name]
    cut = leading(array, MOST_VALUES)
    shown, is_short = _shortened(cut)
    top: list[list[Score]] | None = None
    rows: list[dict[str, Any]] = []
    if declared is not None:
        top = scored_rows(array, declared, spec, labels=labels, k=scores, most=MOST_ROWS)
        if top is None:
            rows = described(name, outputs, declared, spec, labels=labels, most=MOST_ROWS)
    least, largest, mean = _range(array)
    return OutputLine(
        name=name,
        datatype=datatype,
        shape=list(array.shape),
        values=_finite(to_json(shown)),
        truncated=cut.size < array.size or is_short,
        top=[_top(row) for row in top or ()],
        min=least,
        max=largest,
        mean=mean,
        kind=declared.kind if declared else "",
        rows=rows,
    )


def differences(
    a: Mapping[str, Array],
    b: Mapping[str, Array],
    specs: Mapping[str, TensorSpec],
    declared: Declared,
) -> dict[str, OutputDifference]:
    """How two answers differ, output by output; what only one side has cannot be compared."""
    found, declared = {}, fitting(fitting(declared, a, specs), b, specs)
    for name in {**a, **b}:
        found[name] = _differ(name, a.get(name), b.get(name))
        if name in declared:
            found[name] = _by_kind(name, a, b, declared[name], specs.get(name), found[name])
    return found


def _by_kind(
    name: str,
    a: Mapping[str, Array],
    b: Mapping[str, Array],
    declared: DeclaredOutput,
    spec: TensorSpec | None,
    found: OutputDifference,
) -> OutputDifference:
    """The difference, and what the declared kind adds to it."""
    try:
        by_kind = agreement(name, a, b, declared, spec)
    except Invalid as error:
        return replace(found, kind=declared.kind, refused=error.why or error.what)
    return replace(
        found,
        refused="",
        kind=by_kind.kind,
        agreement=by_kind.agreement,
        differing=list(by_kind.differing[:_MOST_DIFFERING]),
        measures={key: _number(value) for key, value in by_kind.measures.items()},
    )


def leading(array: Array, most: int) -> Array:
    """The first part of an array, of all its dimensions, with `most` elements at most."""
    for axis in range(array.ndim):
        below = math.prod(array.shape[axis + 1 :])
        if below <= most:
            keep = most // below if below else array.shape[axis]
            return array[(slice(0, 1),) * axis + (slice(0, max(keep, 1)),)]
    return array


def _differ(name: str, a: Array | None, b: Array | None) -> OutputDifference:
    if a is None or b is None:
        return OutputDifference(refused=f"only {'A' if b is None else 'B'} has this output")
    try:
        found = difference(a, b, name)
    except Invalid as error:
        return OutputDifference(refused=error.why or error.what)
    return OutputDifference(
        equal=found.equal,
        max_abs=_number(found.max_abs),
        max_rel=_number(found.max_rel),
        cosine=_number(found.cosine),
        infinite=found.max_abs is not None and not math.isfinite(found.max_abs),
    )


def _top(row: Sequence[Score]) -> list[Top]:
    return [Top(score.index, score.label, _number(score.value)) for score in row]


def _range(array: Array) -> tuple[float | None, float | None, float | None]:
    """The least, the largest and the mean of the finite values."""
    if array.dtype.kind not in "biuf":
        return None, None, None
    finite = array[np.isfinite(array)].astype(np.float64)
    if not finite.size:
        return None, None, None
    with np.errstate(over="ignore"):
        return float(finite.min()), float(finite.max()), _number(float(finite.mean()))


def _shortened(array: Array) -> tuple[Array, bool]:
    """Texts no longer than can be read, and whether one was."""
    if array.dtype.kind != "O":
        return array, False
    elements = array.ravel().tolist()
    short = np.empty(len(elements), dtype=object)
    short[:] = [element[:_LONGEST_TEXT] for element in elements]
    return short.reshape(array.shape), any(len(one) > _LONGEST_TEXT for one in elements)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
