"""NPZ: arrays by input name, all with one row per example, and `labels`; slices as `slice/NAME`.

Arrays are read row by row: what a header claims takes no memory, and is held against the bytes that
come. Pickles are never read.
"""

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array
from serve.tensors.input_forms import GivenInput, InputForm
from serve.workbench.evaluation.formats.bundle import Zip
from serve.workbench.evaluation.rows import (
    LARGEST_CELL,
    MOST_CELLS,
    MOST_ROWS,
    MOST_SLICES,
    Fresh,
)

LABELS = ("labels", "label", "y")
SLICE = "slice/"
_MOST_ARRAYS = MOST_CELLS + MOST_SLICES + 1
_SUFFIX = ".npy"
_format: Any = np.lib.format  # has no types
_HEADERS = {(1, 0): _format.read_array_header_1_0, (2, 0): _format.read_array_header_2_0}
_BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    SyntaxError,
    OverflowError,
    RecursionError,
    RuntimeError,
    EOFError,
    OSError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True)
class Column:
    """One array of the archive, to be read row by row."""

    name: str
    rows: int
    shape: tuple[int, ...]  # of a row
    dtype: np.dtype[Any]
    file: IO[bytes]

    def read(self, where: str) -> Array:
        """The next row."""
        size = math.prod(self.shape) * self.dtype.itemsize
        data = self.file.read(size)
        if len(data) != size:
            raise Invalid(f"array '{self.name}' ends at {where}", why="its shape has more rows")
        native = np.frombuffer(data, dtype=self.dtype).astype(self.dtype.newbyteorder("="))
        return native.reshape(self.shape)


def read_npz(path: Path, label: str) -> Iterator[Fresh]:
    """Each row; `label` names the array of labels, empty for the usual names."""
    with Zip.opened(path) as bundle, ExitStack() as stack:
        columns = {}
        if len(bundle.paths()) > _MOST_ARRAYS:
            raise Invalid(
                "the archive has too many arrays", why=f"at most {_MOST_ARRAYS} are allowed"
            )
        try:
            for member in bundle.paths():
                name = member.removesuffix(_SUFFIX)
                columns[name] = _column(stack.enter_context(bundle.open(member)), name)
        except _BROKEN as error:
            raise Invalid("the file is not a readable NPZ archive", why=str(error)) from error
        label = label or next((name for name in LABELS if name in columns), "")
        _check(columns, label)
        try:
            yield from _rows(columns, label)
        except _BROKEN as error:
            raise Invalid("the file is not a readable NPZ archive", why=str(error)) from error


def _rows(columns: dict[str, Column], label: str) -> Iterator[Fresh]:
    slices = [name for name in columns if name.startswith(SLICE)]
    inputs = [name for name in columns if name != label and name not in slices]
    for index in range(columns[label].rows):
        where = f"row {index}"
        yield Fresh(
            _text(columns[label].read(where), where, label),
            {name: _npy(columns[name].read(where)) for name in inputs},
            slices={
                name.removeprefix(SLICE): _text(columns[name].read(where), where, name)
                for name in slices
            },
        )


def _column(file: IO[bytes], name: str) -> Column:
    version = _format.read_magic(file)
    if version not in _HEADERS:
        raise Invalid(f"array '{name}' has the unsupported NPY format {version}")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if dtype.kind not in "biufSU" or not dtype.itemsize:
        raise Invalid(
            f"array '{name}' has the dtype {dtype}",
            why="only numbers, booleans and strings are supported",
        )
    if not shape or len(shape) > 32 or any(size < 0 for size in shape):
        raise Invalid(
            f"array '{name}' has the shape {list(shape)[:40]}",
            why="the first dimension must be the rows",
        )
    if is_fortran and len(shape) > 1:
        raise Invalid(
            f"array '{name}' is in Fortran order",
            try_this="call numpy.ascontiguousarray before savez",
        )
    if math.prod(shape[1:]) * dtype.itemsize > LARGEST_CELL or shape[0] > MOST_ROWS:
        raise Invalid(f"array '{name}' is too large", why=f"its shape is {list(shape)[:40]}")
    return Column(name, shape[0], tuple(shape[1:]), dtype, file)


def _check(columns: dict[str, Column], label: str) -> None:
    there = ", ".join(columns)[:500] or "none"
    if label not in columns:
        raise Invalid(
            f"there is no array '{label or LABELS[0]}'",
            why=f"the arrays are {there}",
            try_this="numpy.savez(file, INPUT=…, labels=…)",
        )
    for name, column in columns.items():
        is_text = name == label or name.startswith(SLICE)
        if is_text and math.prod(column.shape) != 1:
            raise Invalid(f"array '{name}' has several values per row", why="one is expected")
        if column.rows != columns[label].rows:
            raise Invalid(
                f"array '{name}' has {column.rows} rows",
                why=f"'{label}' has {columns[label].rows}",
            )


def _npy(row: Array) -> GivenInput:
    file = io.BytesIO()
    np.save(file, row, allow_pickle=False)
    return GivenInput(InputForm.NPY, file.getvalue())


def _text(value: Array, where: str, name: str) -> str:
    """A label or a slice: a text, a truth value, or a number without idle digits."""
    try:
        item = value.reshape(-1)[0].item()
        if isinstance(item, bytes):
            return item.decode()
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{where}: '{name}' is not text", why=str(error)) from error
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, float) and item.is_integer() and abs(item) < 1e15:
        return str(int(item))
    return str(item)
