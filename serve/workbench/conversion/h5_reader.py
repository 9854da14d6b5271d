"""Reads what an HDF5 file holds, without Keras: a .h5 model, or the weights of a .keras archive.

HDF5 is a file system of its own, with links to other files, data sets that lie in other files, and
sizes that nothing stands behind. Keras reads model files with h5py and would follow all of them, so
they are refused here. Runs in the child process only: h5py brings a C library.
"""

import io
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.kinds import is_pickle
from serve.workbench.conversion.sources.zipped import RATIO, SLACK, WEIGHTS

try:
    import h5py
except ImportError:
    h5py = None

MOST_OBJECTS = 200_000
MOST_TEXT = 32 << 20  # bytes of a configuration
MOST_INFLATED = 1 << 30  # bytes of weights that are compressed in their archive
_NAME_LENGTHS = 26  # bytes of a member's header before the lengths of name and extra field
_CONFIG, _TRAINING = "model_config", "training_config"


@dataclass(frozen=True, slots=True)
class Hdf5:
    """The two configurations as JSON, empty where there is none; bytes and count of the arrays."""

    model_config: str
    training_config: str
    bytes: int
    arrays: int

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {name: getattr(self, name) for name in self.__slots__}


def read(path: Path) -> Hdf5:
    """What the file holds; `source_corrupt`, `archive_unsafe`, `pickle_refused`, …"""
    if h5py is None:
        raise failed("converter_missing", "h5py is not installed")
    try:
        with path.open("rb") as file, h5py.File(_inner(file, path), "r") as content:
            return _read(content)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        why = str(error).strip().partition("\n")[0][:300]
        raise failed(
            "source_corrupt", f"'{path.name}' is not a complete HDF5 file: {why}"
        ) from error


class FileWindow(io.RawIOBase):
    """A part of a file as a file of its own; `ZipExtFile` reads all that it steps over."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._position = 0

    def __repr__(self) -> str:
        return f"<FileWindow: {self._size} bytes from {self._start}>"

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set where the next read begins."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read what fits into the buffer; 0 at the end."""
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self._size - self._position))
        self._file.seek(self._start + self._position)
        found = self._file.read(length)
        view[: len(found)] = found
        self._position += len(found)
        return len(found)


def _inner(file: Any, path: Path) -> Any:
    """The HDF5 file itself, which may lie in an archive."""
    if path.suffix.lower() != ".keras":
        return file
    archive = zipfile.ZipFile(file)
    member = archive.getinfo(WEIGHTS)
    if member.compress_type == zipfile.ZIP_STORED:
        file.seek(member.header_offset + _NAME_LENGTHS)
        name, extra = struct.unpack("<2H", file.read(4))
        start = member.header_offset + _NAME_LENGTHS + 4 + name + extra
        return FileWindow(file, start, member.file_size)
    if member.file_size > MOST_INFLATED:
        why = f"its compressed weights have {member.file_size} bytes, the limit is {MOST_INFLATED}"
        raise failed("source_too_large", why)
    return io.BytesIO(archive.read(member))


def _read(content: Any) -> Hdf5:
    total = arrays = stored = 0
    for item in _objects(content):
        _check_attributes(item)
        if not isinstance(item, h5py.Dataset):
            continue
        if item.external or item.is_virtual:
            raise failed("archive_unsafe", f"the array '{item.name}' is stored in other files")
        _check_pickled(item.dtype, item.size, lambda item=item: item[()], str(item.name))
        total += item.size * item.dtype.itemsize
        stored += item.id.get_storage_size()
        arrays += 1
        if total > max(SLACK, RATIO * stored):
            raise failed(
                "archive_unsafe", f"{stored} bytes would expand to {total} (decompression bomb)"
            )
    return Hdf5(_text(content, _CONFIG), _text(content, _TRAINING), total, arrays)


def _objects(content: Any) -> Iterator[Any]:
    """Every group and array, each once, whatever leads to it."""
    seen: set[int] = set()
    waiting: list[Any] = [content]
    while waiting:
        item = waiting.pop()
        place = h5py.h5o.get_info(item.id).addr
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > MOST_OBJECTS:
            raise failed("source_too_large", f"it has more than {MOST_OBJECTS} objects")
        yield item
        if not isinstance(item, h5py.Group):
            continue
        for name in item:
            link = item.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise failed(
                    "archive_unsafe", f"'{name}' links to the file '{link.filename[:200]}'"
                )
            if isinstance(link, h5py.HardLink):  # a soft one leads to what a hard one leads to
                waiting.append(item[name])


def _check_attributes(item: Any) -> None:
    for name in item.attrs:
        kind = item.attrs.get_id(name)
        if name in (_CONFIG, _TRAINING):
            continue
        _check_pickled(kind.dtype, 1, lambda item=item, name=name: item.attrs[name], str(name))


def _check_pickled(dtype: Any, size: int, value: Any, name: str) -> None:
    """Refuse bytes that begin as a pickle does; arrays of numbers and large ones are no such."""
    if dtype.kind not in "SV" and dtype != "uint8":
        return
    if size * dtype.itemsize > 1 << 20 or dtype.names:
        return
    found = value()
    start = found.tobytes()[:8] if hasattr(found, "tobytes") else bytes(found or b"")[:8]
    if is_pickle(start) and (dtype.kind in "SV" or size > 64):  # few numbers may begin like one
        raise failed("pickle_refused", f"'{name}' contains one")


def _text(content: Any, name: str) -> str:
    if name not in content.attrs:
        return ""
    if content.attrs.get_id(name).get_storage_size() > MOST_TEXT:
        raise failed("source_too_large", f"its '{name}' has more than {MOST_TEXT} bytes")
    value = content.attrs[name]
    text = value.decode() if isinstance(value, bytes) else value
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise failed("source_corrupt", f"its '{name}' is not text")
    return text
