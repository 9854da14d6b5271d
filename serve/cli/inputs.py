"""What `--input` says, as tensors: pictures, texts, numpy files, JSON, CSV or random values.

| text              | the tensors                                                               |
|-------------------|---------------------------------------------------------------------------|
| `x=@cat.png`      | x: the picture through the preprocessing that is recorded for x           |
| `x=@a.npy`        | x: the array                                                              |
| `x=@a.npz`        | x: the array of that name in the file                                     |
| `x=@r.json`       | x: nested lists, or the input of that name in a whole KServe v2 request   |
| `x=@rows.csv`     | x: each line is a row                                                     |
| `x=@a.txt`        | x: the text through its preprocessing, or a line for each element         |
| `x=random`        | x: random values of its datatype and shape                                |
| `@a.npz`          | every array of the file; so every input of a whole request in JSON        |
| `@cat.png`, …     | the only input of a model that has one                                    |
| `random`          | every input that nothing else fills                                       |

This module reads the files; `tensors/input_forms.py` makes the tensors. It imports numpy: commands
import it when they run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.input_forms import (
    RAW,
    WHOLE,
    GivenInput,
    InputForm,
    Inputs,
    Named,
    described,
    read_given,
)
from serve.tensors.metadata import TensorSpec

__all__ = ["RANDOM", "InputReader", "Inputs"]

RANDOM = "random"
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_OTHERS: Mapping[str, InputForm] = MappingProxyType(
    {
        ".npy": InputForm.NPY,
        ".npz": InputForm.NPZ,
        ".json": InputForm.JSON,
        ".csv": InputForm.CSV,
        ".txt": InputForm.TEXT,
    }
)
_SUFFIXES = MappingProxyType(dict.fromkeys(IMAGES, InputForm.IMAGE) | dict(_OTHERS))
_WORDS = "NAME=@FILE (picture, .npy, .npz, .json, .csv, .txt), NAME=random, @FILE, or random"
_MOST = 8 << 30  # bytes: the file lies on the caller's own machine


@dataclass(frozen=True, slots=True)
class InputReader:
    """Reads the texts for one model. `preprocessing` fetches its record when something needs it."""

    model: str
    wanted: Mapping[str, TensorSpec]
    preprocessing: Callable[[], Mapping[str, Any]]
    rng: np.random.Generator

    def read(self, texts: Sequence[str], batch: int | None = None) -> Inputs:
        """All inputs. `batch` repeats a single row, or is how many random ones are made."""
        if not texts:
            raise Invalid(
                "no input was given",
                why=f"model '{self.model}' expects {described(self.wanted)}",
                try_this=f"--input {_WORDS}",
            )
        given = [self._named(text) for text in texts]
        record = self.preprocessing() if any(one.form in RAW for _, one in given) else {}
        return read_given(
            self.model, self.wanted, given, record, rng=self.rng, batch=batch, most=_MOST
        )

    def _named(self, text: str) -> Named:
        """What one text gives, and for which input."""
        name, given = given_of(text)
        if given.form not in WHOLE and not name and len(self.wanted) != 1:
            raise Invalid(
                f"--input {text} does not name an input",
                why=f"model '{self.model}' expects {described(self.wanted)}",
                try_this=f"--input {next(iter(self.wanted), 'NAME')}={text}",
            )
        return name, given


def given_of(text: str) -> Named:
    """What one text gives, and for which input; the name is empty where it says none."""
    if text == RANDOM:
        return "", GivenInput(InputForm.RANDOM)
    name, source = _split(text)
    if source == RANDOM:
        return name, GivenInput(InputForm.RANDOM)
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise Invalid(
            f"--input {text}: unknown file type '{suffix or path.name}'",
            try_this=f"{', '.join(_OTHERS)}, or a picture ({', '.join(IMAGES)})",
        )
    return name, GivenInput(_SUFFIXES[suffix], _content(path), str(path))


def _split(text: str) -> tuple[str, str]:
    """Name and source: a path, or the word `random`. The name is empty when none is given."""
    name, separator, source = ("", "=", text) if text.startswith("@") else text.partition("=")
    if separator and source == RANDOM and name:
        return name, RANDOM
    if separator and len(source) > 1 and source.startswith("@") and (name or text[0] == "@"):
        return name, source[1:]
    raise Invalid(f"--input {text} is not valid", try_this=_WORDS)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read '{path}'", why=error.strerror or str(error)) from error
