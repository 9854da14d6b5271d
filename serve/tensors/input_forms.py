"""What people give a model, as tensors: for the command line, the pages and data sets.

| form   | the tensor                                                                     |
|--------|--------------------------------------------------------------------------------|
| image  | the picture through the preprocessing that is recorded for the input           |
| npy    | the array                                                                      |
| npz    | the array of the input's name                                                  |
| json   | nested lists, or the input of that name in a whole KServe v2 request           |
| csv    | a line is a row, its values in row-major order; a header is skipped            |
| text   | through the recorded preprocessing; without any, a line is an element of BYTES |
| random | random values of the input's datatype and shape                                |

Under an empty name, npz and a request in JSON give all the inputs that they hold, random gives all
that nothing else gives, and every other form is for the only input of the model. Then each tensor
gets the model's datatype and, where it lacks it, the batch dimension. Nothing here opens a file.

The last step before a tensor is sent: the model's datatype, its batch dimension, its shape.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors import given_files as files
from serve.tensors.datatypes import BYTES, Array, cast, datatype_of, from_nested
from serve.tensors.metadata import TensorSpec
from serve.tensors.preprocessing import ImageSteps, Steps, TextSteps, parse, tensor_of
from serve.tensors.random_inputs import random_tensor

# --- the last step before a tensor is sent --------------------------------------------------------


def fitted(array: Array, wanted: TensorSpec, batch: int | None, notes: list[str]) -> Array:
    """The array with the model's datatype, and with a batch dimension where one is wanted.

    `batch` repeats a single row. What people should know is added to `notes`; `Invalid` says what
    does not fit.
    """
    name = wanted.name
    made = cast(array, wanted.datatype, name)
    if made.dtype != array.dtype:
        notes.append(f"{name}: {datatype_of(array, name)} is sent as {wanted.datatype}")
    if wanted.shape[:1] in ((-1,), (1,)) and made.ndim == len(wanted.shape) - 1:
        made = made[np.newaxis]
    if batch is not None:
        made = _repeated(made, wanted, batch)
    fits = made.ndim == len(wanted.shape) and all(
        length in (-1, given) for length, given in zip(wanted.shape, made.shape, strict=True)
    )
    if not fits:
        raise Invalid(
            f"input '{name}' has the shape {list(array.shape)}",
            why=f"the model expects {list(wanted.shape)}"
            + (", the first of which is the batch" if wanted.has_batch else ""),
        )
    return made


def _repeated(array: Array, wanted: TensorSpec, batch: int) -> Array:
    """A batch of `batch` rows out of one row, or the array when it has as many already."""
    if not wanted.has_batch:
        raise Invalid(
            f"a batch of {batch} does not fit input '{wanted.name}'",
            why=f"its shape {list(wanted.shape)} has no batch dimension",
        )
    rows = array.shape[0] if array.ndim else 0
    if rows not in (1, batch):
        raise Invalid(
            f"a batch of {batch} does not fit input '{wanted.name}'", why=f"it has {rows} rows"
        )
    return array if rows == batch else np.repeat(array, batch, axis=0)


# --- what people give a model, as tensors ---------------------------------------------------------


MOST = 256 << 20  # bytes of the arrays of one file

Wanted = Mapping[str, TensorSpec]
Named = tuple[str, "GivenInput"]


class InputForm(StrEnum):
    """The form in which something is given; see the table above."""

    IMAGE = "image"
    NPY = "npy"
    NPZ = "npz"
    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    RANDOM = "random"


RAW = frozenset({InputForm.IMAGE, InputForm.TEXT})  # what goes through the recorded preprocessing
WHOLE = frozenset({InputForm.NPZ, InputForm.JSON, InputForm.RANDOM})  # what may hold several inputs


@dataclass(frozen=True, slots=True)
class GivenInput:
    """One thing that is given. `name` is what people call it, such as a file's name."""

    form: InputForm
    data: bytes = b""
    name: str = ""

    @property
    def called(self) -> str:
        """What errors call it."""
        return self.name or f"the given {self.form}"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensors ready to send, their datatypes, and what people should know about them."""

    tensors: Mapping[str, Array]
    datatypes: Mapping[str, str]
    notes: tuple[str, ...]


def read_inputs(
    model: str,
    wanted: Wanted,
    given: Mapping[str, GivenInput],
    preprocessing: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    batch: int | None = None,
) -> Inputs:
    """All inputs. `given` is by the input's name, or by an empty one for all that it holds.

    `preprocessing` is the document that is recorded with the version. `batch` repeats a single
    row, or is how many random ones are made. `Invalid` says what cannot be read or does not fit.
    """
    return read_given(model, wanted, given.items(), preprocessing, rng=rng, batch=batch)


def read_given(
    model: str,
    wanted: Wanted,
    given: Iterable[Named],
    preprocessing: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    batch: int | None = None,
    most: int = MOST,
) -> Inputs:
    """The same of pairs, of which several may lack a name. `most`: bytes of one file's arrays."""
    reader = _Reader(model, wanted, preprocessing, rng, batch or 1, most)
    raw: dict[str, Array] = {}
    is_rest_random = False
    for name, one in given:
        if one.form is InputForm.RANDOM and not name:
            is_rest_random = True
            continue
        for found, array in reader.read(name, one).items():
            if found in raw:
                raise Invalid(f"there are two values for input '{found}'")
            raw[found] = array
    if is_rest_random:
        raw |= {name: reader.random(name) for name in wanted if name not in raw}
    elif not raw and wanted:
        raise Invalid("there is no input", why=f"model '{model}' expects {described(wanted)}")
    if missing := [name for name in wanted if name not in raw]:
        reader.notes.append(f"missing inputs: {', '.join(missing)}")
    tensors = {
        name: fitted(raw[name], spec, batch, reader.notes)
        for name, spec in wanted.items()
        if name in raw
    }
    datatypes = {name: wanted[name].datatype for name in tensors}
    return Inputs(
        MappingProxyType(tensors), MappingProxyType(datatypes), tuple(dict.fromkeys(reader.notes))
    )


def described(wanted: Wanted) -> str:
    """The inputs of a model for people."""
    return ", ".join(f"{each.name} {each.datatype} {list(each.shape)}" for each in wanted.values())


@dataclass(slots=True)
class _Reader:
    """Reads one thing after the other for one model; its notes are what people should know."""

    model: str
    wanted: Wanted
    preprocessing: Mapping[str, Any]
    rng: np.random.Generator
    rows: int
    most: int
    notes: list[str] = field(default_factory=list)

    def read(self, name: str, given: GivenInput) -> Mapping[str, Array]:
        """The tensors that one thing holds, not yet fitted."""
        if name:
            self._require_known(name)
        if given.form is InputForm.NPZ:
            return self._chosen(files.npz_arrays(given.data, given.called, self.most), name, given)
        if given.form is InputForm.JSON:
            return self._json(name, given)
        name = name or self._only(given)
        return {name: _READ[given.form](self, name, given)}

    def random(self, name: str, given: GivenInput | None = None) -> Array:
        """Random values for one input."""
        spec = self.wanted[name]
        return random_tensor(spec.datatype, spec.shape, self.rng, batch=self.rows)

    def image(self, name: str, given: GivenInput) -> Array:
        """A picture through its steps."""
        steps = self._steps(name)
        if not isinstance(steps, ImageSteps):
            raise self._unsaid(name, given, "a picture", _IMAGE, is_other=steps is not None)
        return _through(steps, given.data, given)

    def text(self, name: str, given: GivenInput) -> Array:
        """A text through its steps, or lines as they are."""
        steps, spec = self._steps(name), self.wanted[name]
        if steps is None and spec.datatype == BYTES:
            return files.line_tensor(given.data, spec, given.called)
        if not isinstance(steps, TextSteps):
            raise self._unsaid(name, given, "a text", _TEXT, is_other=steps is not None)
        text = files.text_of(given.data, given.called).removesuffix("\n").removesuffix("\r")
        made = _through(steps, text.encode(), given)
        return made if made.shape else made.reshape([1] * max(len(spec.shape), 1))

    def array(self, name: str, given: GivenInput) -> Array:
        """A .npy file's array."""
        return files.npy_array(given.data, given.called, self.most)

    def table(self, name: str, given: GivenInput) -> Array:
        """A CSV file's rows."""
        return files.csv_tensor(given.data, self.wanted[name], given.called)

    def _json(self, name: str, given: GivenInput) -> Mapping[str, Array]:
        document = files.json_document(given.data, given.called)
        if isinstance(document, dict):
            for key in sorted(set(document) - {"inputs", "id"}):
                self.notes.append(f"{given.called}: '{key}' is not sent")
            return self._chosen(files.request_inputs(document, given.called), name, given)
        name = name or self._only(given)
        return {name: from_nested(document, self.wanted[name].datatype, name)}

    def _steps(self, name: str) -> Steps | None:
        return parse(self.preprocessing).inputs.get(name) if self.preprocessing else None

    def _unsaid(
        self, name: str, given: GivenInput, kind: str, example: Mapping[str, Any], *, is_other: bool
    ) -> Invalid:
        why = "its recorded preprocessing is of another kind"
        return Invalid(
            f"{given.called}: {kind} cannot become input '{name}' of '{self.model}'",
            why=why if is_other else "it has no recorded preprocessing",
            try_this=f"write {self.model}/preprocessing.json in the model repository: "
            + json.dumps({"inputs": {name: example}}),
        )

    def _chosen(
        self, found: Mapping[str, Array], name: str, given: GivenInput
    ) -> Mapping[str, Array]:
        """The one array that is asked for, or all of them when none is named."""
        if not name:
            for each in found:
                self._require_known(each)
            return found
        if name not in found:
            raise Invalid(
                f"{given.called} has no '{name}'", why=f"it has {', '.join(found) or 'nothing'}"
            )
        return {name: found[name]}

    def _require_known(self, name: str) -> None:
        if name not in self.wanted:
            raise Invalid(
                f"model '{self.model}' has no input '{name}'",
                why=f"it expects {described(self.wanted)}",
            )

    def _only(self, given: GivenInput) -> str:
        """The model's only input, for what is given without a name."""
        if len(self.wanted) != 1:
            raise Invalid(
                f"the input for {given.called} is ambiguous",
                why=f"model '{self.model}' expects {described(self.wanted)}",
                try_this="name the input",
            )
        return next(iter(self.wanted))


_READ: Mapping[InputForm, Callable[[_Reader, str, GivenInput], Array]] = MappingProxyType(
    {
        InputForm.IMAGE: _Reader.image,
        InputForm.NPY: _Reader.array,
        InputForm.CSV: _Reader.table,
        InputForm.TEXT: _Reader.text,
        InputForm.RANDOM: _Reader.random,
    }
)
_IMAGE = {
    "kind": "image",
    "color": "rgb",
    "resize": [224, 224],
    "resample": "bilinear",
    "scale": [1, 255],
    "layout": "HWC",
    "dtype": "FP32",
}
_TEXT = {"kind": "text", "as": "codepoints", "length": 128, "dtype": "INT32"}


def _through(steps: Steps, data: bytes, given: GivenInput) -> Array:
    try:
        return tensor_of(data, steps)
    except Invalid as error:
        raise Invalid(
            f"{given.called}: {error.what}", why=error.why, try_this=error.try_this
        ) from error
