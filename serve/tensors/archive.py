"""NPZ archives: arrays by name, read without believing or running anything that stands in them.

`numpy.load` makes an array of the size that a header claims before it looks at the bytes. Here the
claim has to fit the bytes, all of it within a bound; pickles are never read. Texts are `U` or `S`
arrays in the file and BYTES (objects, all `bytes`) outside of it.
"""

import io
import math
import struct
import sys
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array, datatype_of

MOST_ARRAYS = 1000
MOST_TEXTS = 1 << 20  # elements; each becomes an object of its own
_SUFFIX = ".npy"
_MOST_DIMENSIONS = 32  # of numpy 1
_format: Any = np.lib.format  # has no types
_HEADERS = {
    (1, 0): _format.read_array_header_1_0,
    (2, 0): _format.read_array_header_2_0,
}
# Headers are Python literals, and CPython 3.11 may fail when two threads parse some at one time
# (SystemError, "AST constructor recursion depth mismatch"; python/cpython#106905).
_PARSING = threading.Lock()
_BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
    RuntimeError,  # an encrypted member, or a compression that is not there
    OSError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_archive(data: bytes, *, most: int) -> Mapping[str, Array]:
    """The arrays by their names; `most` is the bytes that all may have. `Invalid` otherwise."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise Invalid(
                    f"the archive has {len(members)} arrays",
                    why=f"at most {MOST_ARRAYS} are allowed",
                )
            if sum(member.file_size for member in members) > most:
                raise Invalid("the arrays are too large", why=f"at most {most} bytes are allowed")
            found: dict[str, Array] = {}
            for member in members:
                name = member.filename.removesuffix(_SUFFIX)
                if name in found:
                    raise Invalid(f"the archive has array '{name}' twice")
                found[name] = _array(archive.read(member), name)
    except _BROKEN as error:
        raise Invalid("the file is not a readable NPZ archive", why=str(error)) from error
    if sum(array.size for array in found.values() if array.dtype.kind == "O") > MOST_TEXTS:
        raise Invalid("the archive has too many texts", why=f"at most {MOST_TEXTS} are allowed")
    return MappingProxyType(found)


def read_array(data: bytes, *, most: int) -> Array:
    """The one array of a .npy file; `most` is the bytes that it may have. `Invalid` otherwise."""
    if len(data) > most:
        raise Invalid("the array is too large", why=f"at most {most} bytes are allowed")
    try:
        return _array(data, "")
    except _BROKEN as error:
        raise Invalid("the file is not a readable NPY file", why=str(error)) from error


def write_archive(arrays: Mapping[str, Array], *, most: int) -> bytes:
    """The file that `read_archive` reads; equal arrays give equal bytes. `Invalid` if too large."""
    plain = {
        name: _fixed_width(array, name, most) if array.dtype.kind in "OU" else array
        for name, array in arrays.items()
    }
    if sum(array.nbytes for array in plain.values()) > most:
        raise Invalid("the arrays are too large", why=f"at most {most} bytes are allowed")
    file = io.BytesIO()
    np.savez(file, **plain)
    return file.getvalue()


def _array(content: bytes, name: str) -> Array:
    """The one array of a .npy file."""
    file = io.BytesIO(content)
    version = _format.read_magic(file)
    if version not in _HEADERS:
        raise Invalid(f"array '{name}' has the NPY format {version}, which is not supported")
    with _PARSING:
        shape, is_fortran, dtype = _HEADERS[version](file)
    if dtype.kind not in "biufSU" or not dtype.itemsize:
        raise Invalid(
            f"array '{name}' has type {dtype}", why="only numbers, booleans and texts are supported"
        )
    if len(shape) > _MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise Invalid(f"array '{name}' has the shape {list(shape)[:40]}")
    body = content[file.tell() :]
    if len(body) != math.prod(shape) * dtype.itemsize:
        raise Invalid(f"array '{name}' has {len(body)} bytes, which does not fit its shape")
    native: Array = np.frombuffer(body, dtype=dtype).astype(dtype.newbyteorder("="))
    array = native.reshape(shape, order="F" if is_fortran else "C")
    if dtype.kind in "SU":
        if dtype.kind == "U" and (native.view(np.uint32) > sys.maxunicode).any():
            raise Invalid(f"array '{name}' has a character that is not in Unicode")
        return _texts(array)
    datatype_of(array, name)  # or it is none that Triton has
    return np.ascontiguousarray(array) if array.ndim else array


def _texts(array: Array) -> Array:
    """BYTES of a `U` or `S` array; numpy crashes on characters that do not exist."""
    if array.size > MOST_TEXTS:
        raise Invalid("the archive has too many texts", why=f"at most {MOST_TEXTS} are allowed")
    elements: list[Any] = array.ravel().tolist()
    texts = np.empty(len(elements), dtype=object)
    texts[:] = [one.encode() if isinstance(one, str) else one for one in elements]
    return texts.reshape(array.shape)


def _fixed_width(array: Array, name: str, most: int) -> Array:
    """Texts as an `S` array, whose elements are as long as the longest."""
    elements = [_encoded(one, name) for one in array.ravel().tolist()]
    width = max(1, max(map(len, elements), default=1))
    if width * len(elements) > most:
        raise Invalid("the arrays are too large", why=f"at most {most} bytes are allowed")
    return np.array(elements, dtype=f"S{width}").reshape(array.shape)


def _encoded(element: object, name: str) -> bytes:
    data = element.encode("utf-8", "surrogatepass") if isinstance(element, str) else element
    if not isinstance(data, bytes) or data.endswith(b"\0"):
        raise Invalid(
            f"array '{name}' cannot be stored in an NPZ archive",
            why="its elements must be texts, or bytes that do not end with a zero byte",
        )
    return data
