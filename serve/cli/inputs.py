"""What `--input` says, as tensors: pictures, numpy files, JSON or random values.

| text              | the tensors                                                             |
|-------------------|-------------------------------------------------------------------------|
| `x=@cat.png`      | x: the picture through the preprocessing that is recorded for x         |
| `x=@a.npy`        | x: the array                                                            |
| `x=@a.npz`        | x: the array of that name in the file                                   |
| `x=@r.json`       | x: nested lists, or the input of that name in a whole KServe v2 request |
| `x=random`        | x: random values of its datatype and shape                              |
| `@a.npz`          | every array of the file; so every input of a whole request in JSON      |
| `@cat.png`, …     | the only input of a model that has one                                  |
| `random`          | every input that nothing else fills                                     |

Then each tensor gets the model's datatype and, where it lacks it, the batch dimension. This module
imports numpy: commands import it when they run.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from serve.cli.calling import TensorSpec
from serve.core.errors import Invalid
from serve.tensors.datatypes import Array, cast, datatype_of, from_json, from_nested
from serve.tensors.sampling import random_tensor

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
RANDOM = "random"
_FORMS = "NAME=@FILE (picture, .npy, .npz, .json), NAME=random, @FILE, or random"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensors ready to send, their datatypes, and what people should know about them."""

    tensors: Mapping[str, Array]
    datatypes: Mapping[str, str]
    notes: Sequence[str]


@dataclass(slots=True)
class Reader:
    """Reads the texts for one model. `preprocessing` fetches its record when a picture needs it."""

    model: str
    wanted: Mapping[str, TensorSpec]
    preprocessing: Callable[[], Mapping[str, Any]]
    rng: np.random.Generator
    notes: list[str] = field(default_factory=list)

    def read(self, texts: Sequence[str], batch: int | None = None) -> Inputs:
        """All inputs. `batch` repeats a single row, or is how many random ones are made."""
        if not texts:
            raise Invalid(
                "no input is given",
                why=f"model '{self.model}' wants {self._described()}",
                try_this=f"--input {_FORMS}",
            )
        raw: dict[str, Array] = {}
        for text in texts:
            if text == RANDOM:
                continue
            for name, array in self._one(text, batch).items():
                if name in raw:
                    raise Invalid(f"input '{name}' is given twice")
                raw[name] = array
        if RANDOM in texts:
            raw = {name: self._random(name, batch) for name in self.wanted if name not in raw} | raw
        missing = [name for name in self.wanted if name not in raw]
        if missing:
            self.notes.append(f"not given: {', '.join(missing)}")
        tensors = {
            name: self._fitted(raw[name], wanted, batch)
            for name, wanted in self.wanted.items()
            if name in raw
        }
        datatypes = {name: self.wanted[name].datatype for name in tensors}
        return Inputs(tensors, datatypes, tuple(self.notes))

    def _one(self, text: str, batch: int | None) -> dict[str, Array]:
        """The tensors that one text names, not yet fitted."""
        name, source = _split(text)
        if name:
            self._require_known(name)
        if source == RANDOM:
            return {name: self._random(name, batch)}
        path = Path(source)
        suffix = path.suffix.lower()
        if suffix in IMAGES:
            name = name or self._only(text)
            return {name: self._picture(path, name)}
        if suffix == ".npy":
            return {name or self._only(text): _numpy(path)}
        if suffix == ".npz":
            return _chosen(_numpy_archive(path), name, path, self._require_known)
        if suffix == ".json":
            return self._json(path, name, text)
        raise Invalid(
            f"--input {text}: a file '{suffix or path.name}' is not known here",
            try_this=f".npy, .npz, .json, or a picture ({', '.join(IMAGES)})",
        )

    def _random(self, name: str, batch: int | None) -> Array:
        wanted = self.wanted[name]
        return random_tensor(wanted.datatype, wanted.shape, self.rng, batch=batch or 1)

    def _picture(self, path: Path, name: str) -> Array:
        from serve.tensors.preprocessing import image_tensor, parse

        data = _content(path)
        document = self.preprocessing()
        steps = parse(document).inputs.get(name) if document else None
        if steps is None:
            raise Invalid(
                f"{path}: nothing says how a picture becomes input '{name}' of '{self.model}'",
                why="no preprocessing is recorded for it",
                try_this=f"write {self.model}/preprocessing.json in the model repository: "
                + json.dumps({"inputs": {name: _EXAMPLE}}),
            )
        try:
            return image_tensor(data, steps)
        except Invalid as error:
            raise Invalid(
                f"{path}: {error.what}", why=error.why, try_this=error.try_this
            ) from error

    def _json(self, path: Path, name: str, text: str) -> dict[str, Array]:
        try:
            document = json.loads(_content(path))
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{path} is not JSON", why=str(error)) from error
        if isinstance(document, dict):
            for key in sorted(set(document) - {"inputs", "id"}):
                self.notes.append(f"{path}: '{key}' is not sent")
            return _chosen(_v2_inputs(document, path), name, path, self._require_known)
        name = name or self._only(text)
        return {name: from_nested(document, self.wanted[name].datatype, name)}

    def _fitted(self, array: Array, wanted: TensorSpec, batch: int | None) -> Array:
        """The array with the model's datatype, and with a batch dimension where one is wanted."""
        name = wanted.name
        fitted = cast(array, wanted.datatype, name)
        if fitted.dtype != array.dtype:
            self.notes.append(f"{name}: {datatype_of(array, name)} is sent as {wanted.datatype}")
        if wanted.has_batch and fitted.ndim == len(wanted.shape) - 1:
            fitted = fitted[np.newaxis]
        if batch is not None:
            fitted = _repeated(fitted, wanted, batch)
        fits = fitted.ndim == len(wanted.shape) and all(
            length in (-1, given) for length, given in zip(wanted.shape, fitted.shape, strict=True)
        )
        if not fits:
            raise Invalid(
                f"input '{name}' has the shape {list(array.shape)}",
                why=f"the model wants {list(wanted.shape)}"
                + (", the first of which is the batch" if wanted.has_batch else ""),
            )
        return fitted

    def _require_known(self, name: str) -> None:
        if name not in self.wanted:
            raise Invalid(
                f"model '{self.model}' has no input '{name}'", why=f"it wants {self._described()}"
            )

    def _only(self, text: str) -> str:
        """The model's only input, for a text without a name."""
        if len(self.wanted) != 1:
            raise Invalid(
                f"--input {text} does not say for which input it is",
                why=f"model '{self.model}' wants {self._described()}",
                try_this=f"--input {next(iter(self.wanted), 'NAME')}={text}",
            )
        return next(iter(self.wanted))

    def _described(self) -> str:
        return ", ".join(
            f"{each.name} {each.datatype} {list(each.shape)}" for each in self.wanted.values()
        )


_EXAMPLE = {
    "kind": "image",
    "color": "rgb",
    "resize": [224, 224],
    "resample": "bilinear",
    "scale": [1, 255],
    "layout": "HWC",
    "dtype": "FP32",
}


def _split(text: str) -> tuple[str, str]:
    """Name and source: a path, or the word `random`. The name is empty when none is given."""
    name, separator, source = ("", "=", text) if text.startswith("@") else text.partition("=")
    if separator and source == RANDOM and name:
        return name, RANDOM
    if separator and len(source) > 1 and source.startswith("@") and (name or text[0] == "@"):
        return name, source[1:]
    raise Invalid(f"--input {text} cannot be read", try_this=_FORMS)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _numpy(path: Path) -> Array:
    loaded = _loaded(path)
    if not isinstance(loaded, np.ndarray):
        raise Invalid(f"{path} is no .npy file", why="it holds several arrays", try_this="*.npz")
    return loaded


def _numpy_archive(path: Path) -> dict[str, Array]:
    loaded = _loaded(path)
    if isinstance(loaded, np.ndarray):
        raise Invalid(f"{path} is no .npz file", why="it holds one array", try_this="*.npy")
    return loaded


def _loaded(path: Path) -> Array | dict[str, Array]:
    """The array of a .npy file, or those of an .npz file. Nothing is unpickled."""
    import zipfile
    import zlib

    try:
        with path.open("rb") as file:
            loaded: Any = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise Invalid(
            f"{path} cannot be read",
            why=getattr(error, "strerror", None) or str(error),
            try_this="numpy.save or numpy.savez of plain numbers or texts, not of objects",
        ) from error


def _v2_inputs(document: Mapping[str, Any], path: Path) -> dict[str, Array]:
    """The inputs of a whole KServe v2 request in JSON."""
    rows = document.get("inputs")
    if not isinstance(rows, list):
        raise Invalid(
            f"{path} is no KServe v2 request",
            why="it has no list 'inputs'",
            try_this='{"inputs": [{"name", "shape", "datatype", "data"}]}, or plain lists',
        )
    arrays: dict[str, Array] = {}
    for row in rows:
        try:
            name, datatype, shape, data = (
                row[key] for key in ("name", "datatype", "shape", "data")
            )
        except (KeyError, TypeError) as error:
            raise Invalid(f"{path}: an input lacks {error}") from error
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise Invalid(f"{path}: input '{name}' has the shape {shape}")
        if str(name) in arrays:
            raise Invalid(f"{path}: input '{name}' is there twice")
        arrays[str(name)] = from_json(data, str(datatype), tuple(shape), str(name))
    return arrays


def _chosen(
    found: dict[str, Array], name: str, path: Path, require_known: Callable[[str], None]
) -> dict[str, Array]:
    """The one array that is asked for, or all of them when none is named."""
    if not name:
        for each in found:
            require_known(each)
        return found
    if name not in found:
        raise Invalid(f"{path} has no '{name}'", why=f"it has {', '.join(found) or 'nothing'}")
    return {name: found[name]}


def _repeated(array: Array, wanted: TensorSpec, batch: int) -> Array:
    """A batch of `batch` rows out of one row, or the array when it has as many already."""
    if not wanted.has_batch:
        raise Invalid(
            f"--batch {batch} does not fit input '{wanted.name}'",
            why=f"its shape {list(wanted.shape)} has no batch dimension",
        )
    rows = array.shape[0] if array.ndim else 0
    if rows not in (1, batch):
        raise Invalid(
            f"--batch {batch} does not fit input '{wanted.name}'", why=f"it has {rows} rows"
        )
    return array if rows == batch else np.repeat(array, batch, axis=0)
