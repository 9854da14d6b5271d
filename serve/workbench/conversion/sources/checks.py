"""Whether a source may be opened at all: cheap looks at it, before any library reads it."""

from pathlib import Path

from serve.core.errors import ConversionFailed, Invalid
from serve.model_files.reader import ReaderTooSlow, TooLarge, ask_waiting
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.folders import check_folder
from serve.workbench.conversion.sources.graph import Graph, read_graph
from serve.workbench.conversion.sources.keras_config import KerasModel, read_keras_config
from serve.workbench.conversion.sources.kinds import SourceKind, kind_of
from serve.workbench.conversion.sources.onnx_files import check_onnx
from serve.workbench.conversion.sources.operator_scan import loading_of
from serve.workbench.conversion.sources.operators import faults_of_loading
from serve.workbench.conversion.sources.zipped import check_archive, read_config

_READER = "serve.workbench.conversion.h5_reader"
MOST = 8 << 30  # bytes of a source, and of what comes out of it
INDEX = "variables/variables.index"
_WEIGHTS = {"VarHandleOp", "VariableV2"}
_SECONDS, _MEMORY = 120.0, 2 << 30  # of the process that reads HDF5


def check_source(path: Path, *, most: int = MOST) -> SourceKind:
    """The kind of a source that is harmless to open; `ConversionFailed` with the worst fault.

    No code of it is run, and nothing but a process under limits reads HDF5. It waits for that.
    """
    kind = kind_of(path)
    if kind is SourceKind.SAVEDMODEL:
        check_folder(path, most=most)
        _raise_first(faults_of_graph(path, read_graph(path)))
        return kind
    size = path.stat().st_size
    if size > most:
        raise failed("source_too_large", f"'{path.name}' has {size} bytes, the limit is {most}")
    if kind is SourceKind.ONNX:
        check_onnx(path, most=most)
    else:
        _raise_first(read_keras(path, kind, most=most).faults)
    return kind


def faults_of_graph(folder: Path, graph: Graph) -> tuple[ConversionFailed, ...]:
    """What is wrong with a SavedModel as such, whichever signature is asked for."""
    faults = list(faults_of_loading(loading_of(graph)))
    if not graph.signatures:
        faults.append(failed("no_signature"))
    has_weights = any(node.operator in _WEIGHTS for node in graph.main.nodes.values())
    if has_weights and not (folder / INDEX).is_file():
        faults.append(failed("source_corrupt", f"it has weights but no {INDEX}"))
    return tuple(faults)


def read_keras(path: Path, kind: SourceKind, *, most: int = MOST) -> KerasModel:
    """What a .keras or .h5 says of itself, once its container has been found harmless."""
    if kind is SourceKind.KERAS:
        check_archive(path, most=most)
        model = read_keras_config(read_config(path))
        if not model.faults:  # the file is refused already
            _hdf5(path)
        return model
    config = str(_hdf5(path)["model_config"])
    if not config:
        raise failed(
            "source_corrupt",
            "it contains weights but no model",
            hint="use model.save('MODEL.keras')",
        )
    return read_keras_config(config)


def _hdf5(path: Path) -> dict[str, object]:
    try:
        found = ask_waiting(_READER, path, timeout=_SECONDS, memory=_MEMORY)
    except (ReaderTooSlow, TooLarge) as error:
        raise failed("source_too_large", error.why) from error
    except Invalid as error:
        raise failed("source_corrupt", error.why) from error
    return dict(found)


def _raise_first(faults: tuple[Exception, ...]) -> None:
    if faults:
        raise faults[0]
