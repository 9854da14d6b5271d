"""The forms in which a model comes to be converted, told by suffix and first bytes."""

import stat
from enum import StrEnum
from pathlib import Path

from serve.workbench.conversion.faults import failed

GRAPH_FILE, GRAPH_TEXT = "saved_model.pb", "saved_model.pbtxt"
ZIP, HDF5 = b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"
PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".dill", ".cloudpickle")


class SourceKind(StrEnum):
    """What a source is."""

    SAVEDMODEL = "savedmodel"
    KERAS = "keras"
    H5 = "h5"
    ONNX = "onnx"


SUFFIXES = {
    ".keras": SourceKind.KERAS,
    ".h5": SourceKind.H5,
    ".hdf5": SourceKind.H5,
    ".onnx": SourceKind.ONNX,
}
_STARTS = {SourceKind.KERAS: (ZIP, "a zip archive"), SourceKind.H5: (HDF5, "an HDF5 file")}


def kind_of(path: Path) -> SourceKind:
    """The kind of a source; no more of it is read than eight bytes.

    `source_missing`, `source_unknown`, `pickle_refused`, or `source_corrupt` for a file that does
    not begin as files of its suffix do.
    """
    try:
        str(path).encode()  # libraries take no other names
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise failed("source_missing", f"there is no file or folder '{path.name}'") from error
    except (OSError, ValueError) as error:  # a loop of links, a zero byte, no UTF-8
        raise failed("source_unknown", f"{path.name!a}: {error}") from error
    if stat.S_ISDIR(mode):
        return _kind_of_folder(path)
    if not stat.S_ISREG(mode):
        raise failed("source_unknown", f"'{path.name}' is neither a file nor a folder")
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        raise failed("pickle_refused", f"'{path.name}' is a pickle")
    kind = SUFFIXES.get(suffix)
    if kind is None:
        raise failed("source_unknown", f"'{path.name}' does not end in .keras, .h5 or .onnx")
    _check_start(path, kind)
    return kind


def _kind_of_folder(path: Path) -> SourceKind:
    if stat.S_ISREG(_mode(path / GRAPH_FILE)):
        return SourceKind.SAVEDMODEL
    why = f"the folder '{path.name}' has no {GRAPH_FILE}"
    hint = ""
    if (path / GRAPH_TEXT).exists():
        why = f"the SavedModel '{path.name}' is in text form, and only {GRAPH_FILE} is supported"
        hint = "save it again with a current TensorFlow"
    raise failed("source_unknown", why, hint=hint)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _check_start(path: Path, kind: SourceKind) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise failed("source_corrupt", f"'{path.name}': {error.strerror}") from error
    if not start:
        raise failed("source_corrupt", f"'{path.name}' is empty")
    if kind not in _STARTS:
        return
    wanted, words = _STARTS[kind]
    if start.startswith(wanted):
        return
    why = f"'{path.name}' is not {words}"
    if kind is SourceKind.KERAS and start.startswith(HDF5):
        raise failed("source_corrupt", f"{why} but an HDF5 file", hint="rename it to .h5")
    if is_pickle(start):
        raise failed("pickle_refused", f"{why} but a pickle")
    raise failed("source_corrupt", f"{why}, or it is damaged")


def is_pickle(start: bytes) -> bool:
    """Whether bytes begin as pickles of protocol 2 to 5 do."""
    return len(start) > 1 and start[0] == 0x80 and 2 <= start[1] <= 5
