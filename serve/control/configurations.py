"""What one version takes and gives, and with which configuration: published, or of a plain folder.

What a configuration says is what callers see: its dims with the batch dimension before them. Where
it names no tensors, because Triton completes it, the model file's own signature is told instead.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve.control.applied_configurations import configuration_of
from serve.control.models import Models
from serve.tensors.signature import DYNAMIC, ModelTensor
from serve.triton.canonical import canonical_text
from serve.triton.config import Configuration
from serve.triton.lint.tensors import datatype_of

_MOST_LINES = 20_000  # of two texts together that are compared


@dataclass(frozen=True, slots=True)
class Configured:
    """One version. `config` is canonical config.pbtxt for a published version, and that of the
    folder otherwise; empty where there is none, or nobody but a Triton knows it. The shapes are
    those that callers see, with what people have changed of it."""

    model: str
    version: int
    published: bool
    config: str
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    preprocessing: Mapping[str, Any]
    output_labels: Mapping[str, tuple[str, ...]]
    output_kinds: Mapping[str, Any]
    card: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of two texts beside each other: `+` only in the new, `-` only in the old, or both.

    `old` and `new` are its numbers, from 1, where it is there.
    """

    sign: str
    text: str
    old: int | None
    new: int | None


def configured(models: Models, model: str, number: int) -> Configured:
    """How a version is configured; `UnknownModel`, `UnknownVersion`."""
    models.version(model, number)
    record = models.decisions.versions.get(model, {}).get(number)
    if record is not None:
        decisions = models.decisions
        configuration = configuration_of(decisions, record) if record.config else None
        inputs, outputs = _tensors(configuration, record.signature)
        return Configured(
            *(model, number, True, record.config, inputs, outputs),
            *(record.preprocessing, record.output_labels, record.output_kinds, record.card),
        )
    one = models.get(model).model.holding(number)
    if one is None:  # a replica holds it by itself
        return Configured(model, number, False, "", (), (), {}, {}, {}, {})
    inputs, outputs = _tensors(one.configuration, {})
    text = canonical_text(one.configuration) if one.configuration else ""
    return Configured(
        *(model, number, False, text, inputs, outputs),
        *(one.preprocessing, one.labels, one.output_kinds, one.card),
    )


def compared(old: str, new: str) -> tuple[DiffLine, ...]:
    """Every line of two texts, in order; what was changed is there twice, first as it was."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MOST_LINES:
        before, after = before[: _MOST_LINES // 2], after[: _MOST_LINES // 2]
    return tuple(_lines(before, after))


def _lines(before: list[str], after: list[str]) -> Iterator[DiffLine]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, old, old_end, new, new_end in matcher.get_opcodes():
        if kind == "equal":
            for step in range(old_end - old):
                yield DiffLine(" ", before[old + step], old + step + 1, new + step + 1)
            continue
        for number in range(old, old_end):
            yield DiffLine("-", before[number], number + 1, None)
        for number in range(new, new_end):
            yield DiffLine("+", after[number], None, number + 1)


def _tensors(
    configuration: Configuration | None, signature: Mapping[str, Any]
) -> tuple[tuple[ModelTensor, ...], tuple[ModelTensor, ...]]:
    message = configuration.message if configuration else None
    batch = (DYNAMIC,) if message is not None and message.max_batch_size > 0 else ()
    sides = []
    for side in ("input", "output"):
        stated = tuple(
            ModelTensor(entry.name, datatype_of(entry.data_type), (*batch, *entry.dims))
            for entry in (getattr(message, side) if message is not None else ())
        )
        sides.append(stated or tuple(_spec(row) for row in signature.get(f"{side}s", ())))
    return sides[0], sides[1]


def _spec(row: Mapping[str, Any]) -> ModelTensor:
    shape = row["shape"]
    return ModelTensor(
        str(row["name"]), str(row["datatype"]), None if shape is None else tuple(shape)
    )
