"""A single row of what somebody has tried: a file's bytes, by its name, as cells."""

import io
import json
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType

import numpy as np

from serve.control.evaluation.formats.folder import IMAGES, picture
from serve.control.evaluation.rows import LARGEST_CELL
from serve.tensors import given_files as files
from serve.tensors.datatypes import Array, to_json
from serve.tensors.input_forms import GivenInput, InputForm

_FORMS: Mapping[str, InputForm] = MappingProxyType(
    {".npy": InputForm.NPY, ".csv": InputForm.CSV, ".txt": InputForm.TEXT, ".json": InputForm.JSON}
)


def cells_of(data: bytes, filename: str) -> dict[str, GivenInput]:
    """What a row was given; files of several arrays, and whole requests, by input.

    A name that says nothing is a picture's. `Invalid` for what cannot be read.
    """
    suffix = PurePath(filename).suffix.lower()
    if suffix == ".npz":
        return _each(files.npz_arrays(data, filename, LARGEST_CELL), filename)
    if suffix == ".json":
        document = files.json_document(data, filename)
        if isinstance(document, dict):
            return _each(files.request_inputs(document, filename), filename)
    if suffix in IMAGES or suffix not in _FORMS:
        return {"": picture(data, filename)}
    return {"": GivenInput(_FORMS[suffix], data, filename)}


def _each(arrays: Mapping[str, Array], filename: str) -> dict[str, GivenInput]:
    return {name: _given(array, filename) for name, array in arrays.items()}


def _given(array: Array, filename: str) -> GivenInput:
    if array.dtype.kind == "O":  # texts, which NPY would pickle
        return GivenInput(InputForm.JSON, json.dumps(to_json(array)).encode(), filename)
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return GivenInput(InputForm.NPY, file.getvalue(), filename)
