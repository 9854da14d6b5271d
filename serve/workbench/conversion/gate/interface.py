"""Step 2: the converted model has the inputs and outputs that the source's signature promises.

| tensor | must be the same                          | may differ                                  |
|--------|-------------------------------------------|---------------------------------------------|
| input  | name, datatype, every dimension           | anything, where the source's rank is unknown|
| output | name, datatype, dimensions that both know | a dimension that only one side knows: what  |
|        |                                           | really comes is seen with the numbers       |

An input that is named channels first has its last dimension second in the converted model.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from serve.tensors.datatypes import Array
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.report import GateStep, StepResult


def contract(expected: ModelSignature, found: ModelSignature, nchw: Collection[str]) -> StepResult:
    """Compare the two; `expected` is the source's, with its channels last."""
    wrong = [
        *_unlike("input", expected.inputs, found.inputs, nchw),
        *_unlike("output", expected.outputs, found.outputs, ()),
    ]
    if wrong:
        facts = {"differences": wrong}
        return StepResult(GateStep.CONTRACT, False, wrong[0], "contract_differs", facts=facts)
    counts = f"{_count(expected.inputs, 'input')} and {_count(expected.outputs, 'output')}"
    return StepResult(GateStep.CONTRACT, True, f"{counts} match the signature")


def _count(specs: tuple[ModelTensor, ...], word: str) -> str:
    return f"{len(specs)} {word}{'' if len(specs) == 1 else 's'}"


def channels_first(inputs: Mapping[str, Array], names: Collection[str]) -> Mapping[str, Array]:
    """Inputs as the converted model takes them."""
    if not names:
        return inputs
    return {
        name: np.ascontiguousarray(np.moveaxis(array, -1, 1)) if name in names else array
        for name, array in inputs.items()
    }


def _unlike(
    role: str,
    expected: tuple[ModelTensor, ...],
    found: tuple[ModelTensor, ...],
    nchw: Collection[str],
) -> Iterator[str]:
    have = {spec.name: spec for spec in found}
    for spec in expected:
        got = have.pop(spec.name, None)
        if got is None:
            yield f"{role} '{spec.name}' is missing"
            continue
        if got.datatype != spec.datatype:
            yield f"{role} '{spec.name}' is {got.datatype}, expected {spec.datatype}"
        shape = spec.shape
        if shape is not None and spec.name in nchw and len(shape) > 2:
            shape = (shape[0], shape[-1], *shape[1:-1])
        if not _fits(shape, got.shape, is_input=role == "input"):
            yield f"{role} '{spec.name}' has the shape {_said(got.shape)}, expected {_said(shape)}"
    yield from (f"{role} '{name}' is not in the signature" for name in have)


def _fits(
    expected: tuple[int, ...] | None, found: tuple[int, ...] | None, *, is_input: bool
) -> bool:
    if expected is None:
        return True
    if found is None:
        return not is_input
    if len(expected) != len(found):
        return False
    pairs = zip(expected, found, strict=True)
    return all(one == other or (not is_input and DYNAMIC in (one, other)) for one, other in pairs)


def _said(shape: tuple[int, ...] | None) -> str:
    return "unknown" if shape is None else str(list(shape))
