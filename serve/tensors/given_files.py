"""Files that hold tensors as they are: NumPy's, JSON, CSV, and lines of text; bytes in.

`called` is what people call the file, for the sentences about it.
"""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from serve.core.errors import Invalid
from serve.tensors.archive import read_archive, read_array
from serve.tensors.datatypes import BYTES, Array, Shape, from_json, numpy_dtype
from serve.tensors.metadata import TensorSpec

_ZIP, _NPY = b"PK", b"\x93NUMPY"
_NUMPY = "use numpy.save or numpy.savez with numbers or texts, not objects"
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def npy_array(data: bytes, called: str, most: int) -> Array:
    """The array of a .npy file."""
    if data.startswith(_ZIP):
        raise Invalid(
            f"{called} is not a .npy file", why="it contains several arrays", try_this="use *.npz"
        )
    try:
        return read_array(data, most=most)
    except Invalid as error:
        raise _unreadable(called, error) from error


def npz_arrays(data: bytes, called: str, most: int) -> Mapping[str, Array]:
    """The arrays of an .npz file."""
    if data.startswith(_NPY):
        npy_array(data, called, most)  # which tells when it is not even that
        raise Invalid(
            f"{called} is not an .npz file", why="it contains one array", try_this="use *.npy"
        )
    try:
        return read_archive(data, most=most)
    except Invalid as error:
        raise _unreadable(called, error) from error


def json_document(data: bytes, called: str) -> Any:
    """What a JSON file says."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{called} is not valid JSON", why=str(error)) from error


def request_inputs(document: Mapping[str, Any], called: str) -> dict[str, Array]:
    """The inputs of a whole KServe v2 request in JSON."""
    rows = document.get("inputs")
    if not isinstance(rows, list):
        raise Invalid(
            f"{called} is not a KServe v2 request",
            why="it has no list 'inputs'",
            try_this='use {"inputs": [{"name", "shape", "datatype", "data"}]}, or plain lists',
        )
    arrays: dict[str, Array] = {}
    for row in rows:
        try:
            name, datatype, shape, data = (
                row[key] for key in ("name", "datatype", "shape", "data")
            )
        except (KeyError, TypeError) as error:
            raise Invalid(f"{called}: an input lacks {error}") from error
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise Invalid(f"{called}: input '{name}' has the shape {shape}")
        if str(name) in arrays:
            raise Invalid(f"{called} has input '{name}' twice")
        arrays[str(name)] = from_json(data, str(datatype), tuple(shape), str(name))
    return arrays


def csv_tensor(data: bytes, wanted: TensorSpec, called: str) -> Array:
    """The whole tensor in a CSV file: a line is a row of the batch, its values in row-major order.

    Without a batch dimension all lines together fill the shape. The first line is a header when
    none of its cells is a number; for texts, when its first cell is the input's name.
    """
    try:
        lines = [row for row in csv.reader(io.StringIO(text_of(data, called)), strict=True) if row]
    except csv.Error as error:
        raise Invalid(f"{called} is not CSV", why=str(error)) from error
    if lines and _is_header(lines[0], wanted):
        lines = lines[1:]
    if not lines:
        raise Invalid(f"{called} has no rows")
    for number, cells in enumerate(lines, 1):
        if len(cells) != len(lines[0]):
            raise Invalid(
                f"{called}: row {number} has {len(cells)} values",
                why=f"the first row has {len(lines[0])}",
            )
    values = [
        _value(cell, wanted.datatype, f"{called}: row {number}")
        for number, cells in enumerate(lines, 1)
        for cell in cells
    ]
    if wanted.has_batch:
        row = _filled(wanted.shape[1:], len(lines[0]))
        shape = None if row is None else (len(lines), *row)
    else:
        shape = _filled(wanted.shape, len(values))
    if shape is None:
        rows = "1 row" if len(lines) == 1 else f"{len(lines)} rows"
        raise _misfit(called, f"has {rows} of {len(lines[0])} values", wanted)
    return from_json(values, wanted.datatype, shape, wanted.name)


def line_tensor(data: bytes, wanted: TensorSpec, called: str) -> Array:
    """The whole tensor of BYTES in a text file: each line is an element.

    Where a row of the batch has several elements, so many lines make one.
    """
    elements = text_of(data, called).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if wanted.has_batch:
        row = tuple(max(length, 1) for length in wanted.shape[1:])
        rows, left = divmod(len(elements), math.prod(row))
        shape = None if left else (rows, *row)
    else:
        shape = _filled(wanted.shape, len(elements))
    if shape is None:
        raise _misfit(called, f"has {len(elements)} lines", wanted)
    return from_json(elements, BYTES, shape, wanted.name)


def text_of(data: bytes, called: str) -> str:
    """A text file's text, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{called} is not text", why=str(error), try_this="save it as UTF-8"
        ) from error


def _is_header(cells: Sequence[str], wanted: TensorSpec) -> bool:
    if wanted.datatype == BYTES:
        return cells[0] == wanted.name
    return not any(_number(cell, wanted.datatype) is not None for cell in cells)


def _value(cell: str, datatype: str, where: str) -> Any:
    if datatype == BYTES:
        return cell
    value = _number(cell, datatype)
    if value is None:
        raise Invalid(f"{where} has '{cell[:40]}'", why=f"it is not a value of {datatype}")
    return value


def _number(cell: str, datatype: str) -> bool | int | float | None:
    """A cell as JSON would have it; None for what is no value of the datatype."""
    text = cell.strip()
    if datatype == "BOOL":
        return _TRUTHS.get(text.lower())
    is_float = numpy_dtype(datatype).kind == "f"
    try:
        if is_float:
            return float(text)
        return int(text)
    except ValueError:
        pass
    try:  # a table of numbers may write whole ones as 3.0
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else None


def _filled(shape: Shape, count: int) -> Shape | None:
    """The shape with its one open length chosen so that it holds `count`; None if none does."""
    known = math.prod(length for length in shape if length >= 0)
    open_ones = sum(length < 0 for length in shape)
    if open_ones == 0:
        return shape if known == count else None
    if open_ones > 1 or known == 0 or count % known:
        return None
    return tuple(length if length >= 0 else count // known for length in shape)


def _misfit(called: str, has: str, wanted: TensorSpec) -> Invalid:
    several = sum(length < 0 for length in wanted.shape[1:]) > 1
    return Invalid(
        f"{called} does not fit input '{wanted.name}'",
        why=f"it {has}, and the model expects {list(wanted.shape)}"
        + (", the first of which is the batch" if wanted.has_batch else ""),
        try_this="use .npy or .json, which contain the shape" if several else "",
    )


def _unreadable(called: str, error: Invalid) -> Invalid:
    return Invalid(f"{called} cannot be read", why=str(error), try_this=_NUMPY)
