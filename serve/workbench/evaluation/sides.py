"""Sides: one version of an evaluation, its inputs made of rows, and its answers read.

What an output says is its kind. `outputs.json` tells it (`classes`, `number`, `text`; the other
kinds hold no one label for each row, and are refused); without a declaration its rows do:

| a row of the output                    | kind    | what is predicted                          |
|----------------------------------------|---------|--------------------------------------------|
| floats, two or more                    | classes | the place of the highest, the first of two |
| one float                              | numbers | the number                                 |
| one text, whole number or truth value  | values  | it, as a text                              |

A class is told by its text where the version has label texts and the dataset's labels are such
texts; otherwise by its number, and then the dataset's labels must be numbers.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serve.control.recorded import RecordedDocuments
from serve.core.errors import Invalid
from serve.tensors import given_files as files
from serve.tensors.datatypes import BYTES, Array, to_json
from serve.tensors.input_forms import GivenInput, InputForm, Inputs, described, read_inputs
from serve.tensors.metadata import Metadata, TensorSpec
from serve.tensors.output_comparison import probabilities
from serve.tensors.output_kinds import FLOATS, Declared, DeclaredOutput, kinds_of, row_shape
from serve.workbench.evaluation.results import OutputKind, SideOutput
from serve.workbench.evaluation.rows import LARGEST_CELL

_NEAR = 1e-2  # how far the sum of probabilities may be from 1
_OPEN = ("", "indices")  # of classes: the data type and the shape tell what the values are
_KINDS = {"classes": OutputKind.CLASSES, "number": OutputKind.NUMBERS, "text": OutputKind.VALUES}


@dataclass(frozen=True, slots=True)
class EvaluatedSide:
    """One version, ready to be asked. `texts` name its classes; empty: their numbers do.

    `declared` is how its output is to be read; None if neither outputs.json nor labels tell.
    """

    model: str
    version: int
    inputs: Mapping[str, TensorSpec]
    output: TensorSpec
    kind: OutputKind
    preprocessing: Mapping[str, Any]
    texts: tuple[str, ...]
    declared: DeclaredOutput | None = None

    def tensors(self, cells: Mapping[str, GivenInput], vector: Sequence[str]) -> Inputs:
        """A row as tensors; `Invalid` when it does not fit. `vector` as of the dataset."""
        given = {name: self._shaped(name, one) for name, one in self._named(cells, vector).items()}
        made = read_inputs(
            self.model,
            self.inputs,
            given,
            self.preprocessing,
            rng=np.random.default_rng(0),
        )
        if missing := [name for name in self.inputs if name not in made.tensors]:
            raise Invalid(
                f"the dataset has no values for input '{missing[0]}'",
                why=f"model '{self.model}' expects {described(self.inputs)}",
            )
        return made

    def label(self, text: str) -> str:
        """A label as predictions are told: `7` for `07` where classes are numbers."""
        is_number = (self.kind is OutputKind.CLASSES or self._has_indices) and not self.texts
        return str(int(text)) if is_number else text

    def told(self, outputs: Mapping[str, Array], rows: int, seconds: float) -> list[SideOutput]:
        """What it says of each row of a call; `Invalid` when the answer is none of that."""
        array = outputs.get(self.output.name)
        if array is None:
            raise Invalid(f"the response has no output '{self.output.name}'")
        each = array if self.output.has_batch else array[np.newaxis]
        if each.ndim == 0 or len(each) != rows:
            raise Invalid(
                f"output '{self.output.name}' has the shape {list(array.shape)}",
                why=f"{rows} rows were sent",
            )
        return [self._read(row.reshape(-1), seconds * 1000) for row in each]

    def _read(self, row: Array, milliseconds: float) -> SideOutput:
        if self.kind is OutputKind.CLASSES:
            return self._class(row, milliseconds)
        if row.size != 1:
            raise Invalid(
                f"output '{self.output.name}' has {row.size} values per row",
                why="one value per row is expected",
            )
        value = to_json(row)[0]
        if self._has_indices:
            return SideOutput(self._told(int(value)), milliseconds=milliseconds)
        if self.kind is OutputKind.NUMBERS:
            if not math.isfinite(value):
                raise Invalid(
                    f"output '{self.output.name}' is not finite", why=f"its value is {value}"
                )
            return SideOutput(repr(float(value)), milliseconds=milliseconds)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return SideOutput(text, milliseconds=milliseconds)

    @property
    def _has_indices(self) -> bool:
        return self.declared is not None and self.declared.values == "indices"

    def _told(self, place: int) -> str:
        return self.texts[place] if 0 <= place < len(self.texts) else str(place)

    def _class(self, row: Array, milliseconds: float) -> SideOutput:
        scores = row.astype(np.float64)
        if scores.size < 2 or not np.isfinite(scores).all():
            raise Invalid(
                f"output '{self.output.name}' is not a row of scores",
                why="a score is not finite" if scores.size > 1 else f"it has {scores.size} values",
            )
        if self.declared is not None:
            scores = probabilities(scores, self.declared)
        place = int(scores.argmax())
        score = float(scores[place])
        is_share = scores.min() >= 0 and abs(float(scores.sum()) - 1) <= _NEAR
        confidence = min(score, 1.0) if is_share else None
        return SideOutput(self._told(place), score, confidence, milliseconds)

    def _named(
        self, cells: Mapping[str, GivenInput], vector: Sequence[str]
    ) -> dict[str, GivenInput]:
        """The cells by the model's inputs."""
        named = dict(cells)
        if "" in named and vector and set(self.inputs) <= set(vector) | set(named):
            numbers = files.json_document(named.pop("").data, "the row")
            split = dict(zip(vector, numbers, strict=True))
            for name in set(self.inputs) - set(named):
                named[name] = GivenInput(InputForm.JSON, json.dumps([split[name]]).encode(), name)
        elif len(self.inputs) == 1 and len(named) == 1:
            return {next(iter(self.inputs)): next(iter(named.values()))}
        if unknown := [name for name in named if name not in self.inputs]:
            what = "columns of numbers" if unknown[0] == "" else f"'{unknown[0]}'"
            raise Invalid(
                f"the dataset has {what}, which model '{self.model}' does not accept",
                why=f"it expects {described(self.inputs)}",
            )
        return named

    def _shaped(self, name: str, given: GivenInput) -> GivenInput:
        """Numbers in the input's shape, where theirs is another one of as many elements."""
        spec = self.inputs[name]
        if given.form is InputForm.TEXT and spec.datatype == BYTES and not self._has_steps(name):
            return self._as_text(given, spec)
        shape = spec.shape[1:] if spec.shape[:1] in ((-1,), (1,)) else spec.shape
        if given.form not in (InputForm.JSON, InputForm.NPY) or min(shape, default=1) < 0:
            return given
        if given.form is InputForm.NPY:
            array = files.npy_array(given.data, given.called, LARGEST_CELL)
            if array.shape in (shape, spec.shape) or array.size != math.prod(shape):
                return given
            return GivenInput(
                InputForm.JSON, json.dumps(to_json(array.reshape(shape))).encode(), given.name
            )
        document = files.json_document(given.data, given.called)
        is_flat = isinstance(document, list) and not any(isinstance(x, list) for x in document)
        if not is_flat or len(shape) == 1 or len(document) != math.prod(shape):
            return given
        values = np.array(document, dtype=object).reshape(shape).tolist()
        return GivenInput(InputForm.JSON, json.dumps(values).encode(), given.name)

    def _as_text(self, given: GivenInput, spec: TensorSpec) -> GivenInput:
        """One element, whatever line ends it has."""
        value: Any = files.text_of(given.data, given.called)
        for _ in range(max(len(spec.shape) - 1, 1)):
            value = [value]
        return GivenInput(InputForm.JSON, json.dumps(value).encode(), given.name)

    def _has_steps(self, name: str) -> bool:
        steps = self.preprocessing.get("inputs")
        return isinstance(steps, Mapping) and name in steps


def side_of(
    model: str,
    version: int,
    metadata: Metadata,
    recorded: RecordedDocuments,
    *,
    output: str,
    labels: Collection[str],
) -> EvaluatedSide:
    """A side for a dataset whose labels are these; `Invalid` when they do not go together."""
    declared = kinds_of(recorded.output_kinds, recorded.labels, metadata.outputs)
    spec = _output(model, metadata, declared, output)
    one = declared.get(spec.name)
    kind = _kind(spec, one)
    texts: tuple[str, ...] = ()
    if kind is OutputKind.CLASSES or (one is not None and one.kind == "classes"):
        texts = _texts(model, version, tuple(recorded.labels.get(spec.name, ())), labels)
        if not texts and kind is OutputKind.CLASSES:
            _check_range(spec, labels)
    elif kind is OutputKind.NUMBERS:
        for label in labels:
            if not _is_number(label):
                raise Invalid(
                    f"the label '{label}' is not a number",
                    why=f"output '{spec.name}' of model '{model}' is a single number",
                )
    steps = recorded.preprocessing
    return EvaluatedSide(model, version, metadata.inputs, spec, kind, steps, texts, one)


def _output(model: str, metadata: Metadata, declared: Declared, output: str) -> TensorSpec:
    known = metadata.outputs
    if output:
        if output not in known:
            raise Invalid(
                f"model '{model}' has no output '{output}'",
                why=f"its outputs are {', '.join(known)}",
            )
        return known[output]
    readable = [name for name in known if name not in declared or declared[name].kind in _KINDS]
    classes = [name for name in known if name in declared and declared[name].kind == "classes"]
    for names in (list(known), classes, readable):
        if len(names) == 1:
            return known[names[0]]
    likely = [name for name in readable if _scored(known[name])] or list(known)
    raise Invalid(
        f"it is not clear which output of model '{model}' to evaluate",
        why=f"its outputs are {', '.join(known)}",
        try_this=", or ".join(f"--output {name}" for name in likely),
    )


def _kind(spec: TensorSpec, declared: DeclaredOutput | None) -> OutputKind:
    if declared is None or (declared.kind == "classes" and declared.values in _OPEN):
        if _scored(spec):
            return OutputKind.CLASSES
        return OutputKind.NUMBERS if spec.datatype in FLOATS else OutputKind.VALUES
    kind = _KINDS.get(declared.kind)
    if kind is None:
        raise Invalid(
            f"output '{spec.name}' cannot be evaluated",
            why=f"outputs.json declares it as '{declared.kind}', which has no label per row",
            try_this="choose another output with --output, or compare two versions with "
            "`servegate compare`",
        )
    if kind is not OutputKind.CLASSES and math.prod(row_shape(spec)) > 1:
        raise Invalid(
            f"output '{spec.name}' cannot be evaluated",
            why=f"a row has the shape {list(row_shape(spec))}, but one value is expected",
        )
    return kind


def _scored(spec: TensorSpec) -> bool:
    """Whether a row has several floats."""
    return spec.datatype in FLOATS and math.prod(row_shape(spec)) != 1


def _texts(
    model: str, version: int, texts: tuple[str, ...], labels: Collection[str]
) -> tuple[str, ...]:
    """How classes are told; empty for their numbers."""
    if texts and set(labels) <= set(texts):
        return texts
    if all(one.isascii() and one.isdigit() for one in labels):
        return ()
    odd = next(one for one in labels if one not in texts)
    raise Invalid(
        f"the label '{odd}' is not a class of version {version} of model '{model}'",
        why=f"its label texts are {', '.join(texts[:20])}" if texts else "it has no label texts",
        try_this="use class numbers as labels, or the texts in the version's label_filename",
    )


def _check_range(spec: TensorSpec, labels: Collection[str]) -> None:
    count = math.prod(spec.shape[1:] if spec.has_batch else spec.shape)
    for label in labels:
        if len(label) > 9 or 0 < count <= int(label):
            raise Invalid(
                f"the label '{label}' is not a class of output '{spec.name}'",
                why=f"the output has {count} scores" if count > 0 else "it is not a class number",
            )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
