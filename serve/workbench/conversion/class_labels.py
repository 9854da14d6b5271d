"""The label file that comes with a source, and the outputs.json that is written with it.

    SAVEDMODEL/labels.txt, SAVEDMODEL/assets/labels.txt, SAVEDMODEL/assets.extra/labels.txt,
    or labels.txt in the folder of the .keras, .h5 or .onnx file

An output holds these classes if each of its rows is a vector of as many floats as there are lines.
The last operator tells what they are: Softmax gives probabilities, Sigmoid probabilities of labels
of which several may apply, and everything else logits.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serve.core.versions import OUTPUTS
from serve.tensors.output_kinds import FLOATS
from serve.tensors.signature import ModelSignature

LABELS = "labels.txt"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClassLabels:
    """`kinds` is what outputs.json declares; `notes` are sentences for whoever converts."""

    text: bytes
    kinds: Mapping[str, Mapping[str, str]]
    notes: Sequence[str]

    def write(self, folder: Path) -> None:
        """Write labels.txt and outputs.json, if an output is declared."""
        if self.kinds:
            (folder / LABELS).write_bytes(self.text)
            page = json.dumps({"outputs": self.kinds}, indent=2)
            (folder / OUTPUTS).write_text(f"{page}\n")


def class_labels(
    source: Path,
    signature: ModelSignature,
    last_operators: Mapping[str, str],
    *,
    is_batched: bool,
) -> ClassLabels:
    """What the label file beside a source declares; without one, what could be declared.

    `signature` and `last_operators` are those of the converted model.
    """
    sizes = dict(_vectors(signature, is_batched=is_batched))
    file = _label_file(source)
    if file is None:
        return ClassLabels(b"", {}, [*_proposals(sizes, last_operators)])
    text = file.read_bytes()
    count = len(text.decode("utf-8", "replace").splitlines())
    kinds = {
        name: {**_kind(last_operators.get(name, "")), "labels": LABELS}
        for name, size in sizes.items()
        if size == count
    }
    if kinds:
        told = ", ".join(f"'{name}' as {one['kind']}" for name, one in kinds.items())
        note = f"outputs.json declares {told}, with {file.name} of the model"
    else:
        note = f"{LABELS} is not used: no output has {count} floats per row, one for each line"
    return ClassLabels(text, kinds, [note])


def _label_file(source: Path) -> Path | None:
    folders = [source, source / "assets", source / "assets.extra"]
    for folder in folders if source.is_dir() else [source.parent]:
        file = folder / LABELS
        if file.is_file() and not file.is_symlink() and 0 < file.stat().st_size <= _MOST_BYTES:
            return file
    return None


def _vectors(signature: ModelSignature, *, is_batched: bool) -> Iterator[tuple[str, int]]:
    """The outputs of which a row is a vector of floats, and its size."""
    for spec in signature.outputs:
        row = spec.shape if spec.shape is None or not is_batched else spec.shape[1:]
        if row is not None and len(row) == 1 and row[0] > 1 and spec.datatype in FLOATS:
            yield spec.name, row[0]


def _proposals(sizes: Mapping[str, int], last_operators: Mapping[str, str]) -> Iterator[str]:
    for name, size in sizes.items():
        if last_operators.get(name) in ("Softmax", "Sigmoid"):
            kind = _kind(last_operators[name])["kind"]
            yield (
                f"output '{name}' looks like {kind}: to have it shown so, put {LABELS} with {size} "
                "lines beside the model, or declare it in outputs.json (docs/outputs.md)"
            )


def _kind(operator: str) -> dict[str, str]:
    if operator == "Sigmoid":
        return {"kind": "multilabel", "values": "probabilities"}
    return {"kind": "classes", "values": "probabilities" if operator == "Softmax" else "logits"}
