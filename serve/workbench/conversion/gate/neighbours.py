"""Step 4: a row's answer may not depend on its neighbours, or requests must not be batched.

Each row is asked alone; then among others, in another order, and beside zeros and large values, as
strangers' requests may be. Both models are asked. A dependence is no fault of the conversion: the
step passes, and the model is served without batching. So is one with a tensor that has no dimension
besides the rows, unless the user asks for batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serve.tensors.datatypes import Array
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.gate.input_search import Runner, SourceRange, ask, inputs_for
from serve.workbench.conversion.gate.rules import Norm, PrecisionRule
from serve.workbench.conversion.gate.samples import InputSamples
from serve.workbench.conversion.gate.shapes import Size, has_rows
from serve.workbench.conversion.gate.tallies import JudgedOutput
from serve.workbench.conversion.gate.unsteady import movement, with_room
from serve.workbench.conversion.report import GateStep, StepResult
from serve.workbench.conversion.request import ConversionRequest

Inputs = Mapping[str, Array]
ROWS = 5
_HOSTILE = {"zeros": "zeros", "large": "large values"}  # family to its name in a report


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One call, and which rows of the answer belong to which rows of the original."""

    label: str
    inputs: Inputs
    places: tuple[tuple[int, int], ...]  # of the answer, of the original
    is_hostile: bool = False  # the model need not take it


def independence(
    models: Mapping[str, Runner],
    expected: ModelSignature,
    found: ModelSignature,
    *,
    reach: SourceRange,
    norms: Mapping[str, Norm],
    request: ConversionRequest,
    rules: Mapping[str, PrecisionRule],
    samples: InputSamples | None,
) -> tuple[StepResult, bool]:
    """`models`: the source and the converted one, by these names, as `rules` are.

    Also whether it is batched.
    """
    fixed = _without_rows(expected.inputs + found.inputs + found.outputs)
    if fixed:
        return _alone(f"'{fixed}' has no free first dimension")
    flat = _without_width(expected.inputs + found.inputs + found.outputs)
    if flat and request.max_batch_size is None:
        why = f"'{flat}' has no dimension except the rows"
        return _alone(f"{why}; --max-batch-size 8 batches it and adds a second dimension of 1")
    rng = np.random.default_rng([request.seed, 4])
    given = [_generated(expected, reach, "normal", ROWS, rng)]
    if samples is not None and samples.count > 1:
        given.append(samples.part(0, min(ROWS, samples.count)))
    for rows in given:
        hostile = {name: _generated(expected, reach, name, ROWS, rng) for name in _HOSTILE}
        for name, runner in models.items():
            why = _Rows(runner, norms, rules[name], request).dependence(rows, hostile)
            if why:
                return _alone(f"{name}: {why}")
    summary = f"{sum(map(_count, given))} rows give the same results alone and in a batch"
    return StepResult(GateStep.BATCH, True, summary), True


class _Rows:
    """Asks one model for rows in company."""

    def __init__(
        self,
        runner: Runner,
        norms: Mapping[str, Norm],
        rule: PrecisionRule,
        request: ConversionRequest,
    ) -> None:
        self._runner = runner
        self._norms = norms
        self._rule = rule
        self._request = request

    def __repr__(self) -> str:
        return f"_Rows({self._runner!r})"

    def dependence(self, rows: Inputs, hostile: Mapping[str, Inputs]) -> str:
        """Why its rows depend on each other; empty when they do not."""
        alone: list[Inputs] = []
        for place in range(_count(rows)):
            answer, trouble = ask(self._runner, _row(rows, place))
            if answer is None:
                return f"it rejects a single row: {trouble}"
            alone.append(answer)
        for one in _arrangements(rows, hostile):
            answer, trouble = ask(self._runner, one.inputs)
            if answer is None:
                if not one.is_hostile:
                    return f"it rejects {_count(one.inputs)} rows: {trouble}"
                continue
            for there, here in one.places:
                why = self._unlike(answer, there, alone[here], _row(rows, here), one)
                if why:
                    return why
        return ""

    def _unlike(
        self, answer: Inputs, there: int, alone: Inputs, inputs: Inputs, one: Arrangement
    ) -> str:
        for name, expected in alone.items():
            got = answer[name]
            if not got.ndim or len(got) != _count(one.inputs) or len(expected) != 1:
                return f"'{name}' has shape {list(got.shape)} for {_count(one.inputs)} rows"
            row = got[there : there + 1]
            if row.shape != expected.shape:
                return f"'{name}' has a different shape {one.label}"
            far = self._far(name, row, expected, inputs, alone)
            if far:
                return f"'{name}' differs by {far:.3g} {one.label}"
        return ""

    def _far(self, name: str, row: Array, expected: Array, inputs: Inputs, alone: Inputs) -> float:
        """How far a row is off, where that is more than allowed; else 0."""
        judged = JudgedOutput.of(
            name, row, expected, norms=self._norms, rule=self._rule, request=self._request
        )
        if judged.excess <= 1:
            return 0.0
        moved = movement(self._runner, inputs, alone, self._rule.shake)[name]
        judged = with_room(judged, moved, self._rule)
        return float(judged.gaps[judged.place]) if judged.excess > 1 else 0.0


def _arrangements(rows: Inputs, hostile: Mapping[str, Inputs]) -> Iterator[Arrangement]:
    count = _count(rows)
    yield Arrangement("in a batch", rows, tuple((place, place) for place in range(count)))
    turned = {name: array[::-1] for name, array in rows.items()}
    order = tuple((place, count - 1 - place) for place in range(count))
    yield Arrangement("in another order", turned, order)
    for family, others in hostile.items():
        if not _is_alike(rows, others):
            continue
        for here in (0, count - 1):
            joined = {
                name: np.concatenate([others[name][:2], array[here : here + 1], others[name][2:]])
                for name, array in rows.items()
            }
            yield Arrangement(f"next to {_HOSTILE[family]}", joined, ((2, here),), is_hostile=True)


def _generated(
    signature: ModelSignature, reach: SourceRange, family: str, rows: int, rng: np.random.Generator
) -> Inputs:
    return inputs_for(signature, reach, Size(rows, reach.lengths[0]), family, rng)


def _is_alike(rows: Inputs, others: Inputs) -> bool:
    """Whether they can stand in one call: the user's samples may have another length."""
    return all(array.shape[1:] == others[name].shape[1:] for name, array in rows.items())


def _row(rows: Inputs, place: int) -> Inputs:
    return {name: array[place : place + 1] for name, array in rows.items()}


def _count(rows: Inputs) -> int:
    return len(next(iter(rows.values())))


def _without_rows(specs: Sequence[ModelTensor]) -> str:
    return next((spec.name for spec in specs if not has_rows((spec,))), "")


def _without_width(specs: Sequence[ModelTensor]) -> str:
    """The first tensor of one dimension. With batches Triton gives it a second one, and callers
    would have to know that: the signature has none."""
    return next(
        (spec.name for spec in specs if spec.shape is not None and len(spec.shape) == 1), ""
    )


def _alone(why: str) -> tuple[StepResult, bool]:
    facts = {"why": why}
    return StepResult(GateStep.BATCH, True, f"no batching: {why}", facts=facts), False
