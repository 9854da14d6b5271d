"""Sources of every kind, as SavedModels: one path for all of them afterwards.

A .keras or .h5 file is loaded by Keras, with `safe_mode`, so that no code in it is run, and without
its optimiser, and is exported as a SavedModel whose signatures are `serve` and `serving_default`.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources import SourceKind, check_source

EXPORTED = "exported"  # the folder in the work folder
_CODE = ("`Lambda` layer", "safe_mode=False", "enable_unsafe_deserialization")
_UNKNOWN = ("Could not locate", "Unknown layer", "Unknown object", "could not be deserialized")


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A SavedModel's folder (or an ONNX file), where it came from, and facts for the report."""

    folder: Path
    kind: SourceKind
    facts: Mapping[str, Any]


def open_source(path: Path, work: Path) -> OpenedSource:
    """Check the source, and export it below `work` where it is no SavedModel or ONNX file."""
    kind = check_source(path)
    if kind not in (SourceKind.KERAS, SourceKind.H5):
        return OpenedSource(path, kind, MappingProxyType({"kind": str(kind)}))
    model = _keras_model(path) if kind is SourceKind.KERAS else _hdf5_model(path, work)
    folder = work / EXPORTED
    _export(model, folder)
    facts = {"kind": str(kind), "keras_model": model.name, "parameters": int(model.count_params())}
    return OpenedSource(folder, kind, MappingProxyType(facts))


def _keras_model(path: Path) -> Any:
    """The model in the file; never with `safe_mode=False`, which would run code out of it."""
    import keras

    keras.utils.clear_session()  # names do not depend on what was loaded before
    try:
        return keras.saving.load_model(str(path), compile=False, safe_mode=True)
    except Exception as error:
        raise _not_loaded(error) from error


def _hdf5_model(path: Path, work: Path) -> Any:
    """The same for an HDF5 file, which Keras 2 may have written.

    Keras 2 wrote `time_major` into recurrent layers, which Keras 3 refuses. False, it says nothing.
    """
    try:
        return _keras_model(path)
    except ConversionFailed as error:
        if not _version_of(path).startswith("2."):
            raise
        copy = work / f"keras3{path.suffix}"
        if error.code == "source_corrupt" and _without_time_major(path, copy):
            try:
                return _keras_model(copy)
            except ConversionFailed as other:
                error = other
        if error.code != "source_corrupt":
            raise error
        raise failed("keras_2", error.why) from error


def _version_of(path: Path) -> str:
    import h5py

    with h5py.File(path) as file:
        version = file.attrs.get("keras_version", "")
    return version.decode() if isinstance(version, bytes) else str(version)


def _without_time_major(path: Path, copy: Path) -> bool:
    """Write a copy whose layers do not say `time_major: false`; False where none says so."""
    import h5py

    shutil.copyfile(path, copy)
    with h5py.File(copy, "r+") as file:
        text = file.attrs["model_config"]
        page = json.loads(text, object_hook=_without_false)
        file.attrs["model_config"] = json.dumps(page).encode()
    return bool(page != json.loads(text))


def _without_false(value: dict[str, Any]) -> dict[str, Any]:
    return {k: each for k, each in value.items() if k != "time_major" or each is not False}


def _export(model: Any, folder: Path) -> None:
    if not model.built:
        raise failed(
            "no_signature",
            "the model was never called, so the shape of its input is not known",
            hint="call the model once, or start it with keras.Input(…), and save it again",
        )
    try:
        model.export(str(folder), format="tf_saved_model", verbose=False)
    except Exception as error:
        raise failed("source_corrupt", f"Keras cannot export it: {_line(error)}") from error


def _not_loaded(error: Exception) -> ConversionFailed:
    """The fault that Keras speaks of: code in the file, a class that is not there, or damage."""
    words = str(error)
    if any(word in words for word in _CODE):
        return failed("lambda_layer", _line(error), operator="Lambda")
    if any(word in words for word in _UNKNOWN):
        return failed("custom_object", _line(error, _UNKNOWN))
    return failed("source_corrupt", f"Keras fails with {type(error).__name__}: {_line(error)}")


def _line(error: Exception, words: tuple[str, ...] = ()) -> str:
    """The line with the first of these words that is there, else the first."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    telling = [line for word in words for line in lines if word in line]
    return (telling or lines or [type(error).__name__])[0][:300]
