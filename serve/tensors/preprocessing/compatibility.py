"""The recorded preprocessing held against a model's inputs, before anybody sends anything."""

from collections.abc import Mapping
from typing import Protocol

from serve.tensors.datatypes import Shape
from serve.tensors.preprocessing.steps import UNKNOWN, Preprocessing, Steps


class Input(Protocol):
    """One input of a model, as metadata or a model file describes it.

    `shape` has the batch dimension where there is one, -1 for any length, and is None where even
    the number of dimensions is unknown.
    """

    @property
    def datatype(self) -> str:
        """The datatype in KServe v2's words."""
        ...

    @property
    def shape(self) -> Shape | None:
        """See the class."""
        ...


def check(preprocessing: Preprocessing, inputs: Mapping[str, Input]) -> tuple[str, ...]:
    """A sentence for each input whose preprocessing makes a tensor that the model cannot take."""
    found: list[str] = []
    for name, steps in preprocessing.inputs.items():
        if name not in inputs:
            found.append(
                f"'{name}' is not an input of the model (inputs: {', '.join(inputs) or 'none'})"
            )
            continue
        wanted = inputs[name]
        if steps.dtype != wanted.datatype:
            found.append(f"'{name}' becomes {steps.dtype}, but the model expects {wanted.datatype}")
        if wanted.shape is not None and not _fits(steps, wanted.shape):
            made = ", ".join("any" if n == UNKNOWN else str(n) for n in steps.shape)
            found.append(
                f"'{name}' becomes a tensor of shape [{made}], "
                f"but the model expects {list(wanted.shape)} (with batch dimension)"
            )
    return tuple(found)


def _fits(steps: Steps, wanted: Shape) -> bool:
    """Whether the tensor fits, alone or as one row of a batch."""
    made = steps.shape
    if made == ():  # one element, which has whatever shape one element may have
        return all(length in (UNKNOWN, 1) for length in wanted[1:])
    is_row = len(wanted) == len(made) + 1 and wanted[0] != 0
    within = wanted[1:] if is_row else wanted
    return len(within) == len(made) and all(
        UNKNOWN in (one, other) or one == other for one, other in zip(within, made, strict=True)
    )
