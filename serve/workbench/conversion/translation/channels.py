"""Inputs that a converted model takes with their channels first.

TensorFlow keeps images as rows, columns, channels; many clients have them as channels, rows,
columns. The converted model may take the latter; then its signature is not the source's.
"""

from collections.abc import Collection
from dataclasses import replace

from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.faults import failed

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # axes, as transposing takes them


def channels_first(signature: ModelSignature, names: Collection[str]) -> ModelSignature:
    """The signature with these inputs channels first; `unsupported_input` for what is no image."""
    if lost := sorted(set(names) - {spec.name for spec in signature.inputs}):
        raise failed(
            "unsupported_input",
            f"there is no input '{lost[0]}' for --nchw",
            hint=f"use one of {', '.join(spec.name for spec in signature.inputs)}",
        )
    return replace(
        signature,
        inputs=tuple(_turned(each) if each.name in names else each for each in signature.inputs),
    )


def _turned(spec: ModelTensor) -> ModelTensor:
    if spec.shape is None or len(spec.shape) != len(TO_FIRST):
        raise failed(
            "unsupported_input",
            f"input '{spec.name}' does not have four dimensions",
            hint="use --nchw only for images",
        )
    return replace(spec, shape=tuple(spec.shape[axis] for axis in TO_FIRST))
