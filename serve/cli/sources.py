"""What `servegate model push PATH` can send: which kind of thing lies there, and its files.

| what is there                       | what becomes of it                                        |
|-------------------------------------|-----------------------------------------------------------|
| a folder with `MLmodel`             | its ONNX flavour; others are refused with what to do      |
| a folder with `saved_model.pb`      | has to be converted                                       |
| a folder with numbered folders      | a model folder of Triton: one version of it               |
| `FILE.onnx`                         | the file, its external data, a generated config.pbtxt     |
| `FILE.keras`, `FILE.h5`             | has to be converted                                       |
"""

from pathlib import Path

from serve.cli.mlflow_folder import MLMODEL, read_flavours, read_mlflow_folder, refused
from serve.cli.onnx_file import ReadModel, read_onnx_file
from serve.cli.pieces import Source
from serve.cli.triton_folder import read_triton_folder
from serve.core.errors import Invalid
from serve.core.naming import check_model_name

SAVED_MODEL = "saved_model.pb"
_TF2ONNX = "python -m tf2onnx.convert --saved-model DIR --output model.onnx"
_KERAS = frozenset({".keras", ".h5", ".hdf5"})
_BARE = frozenset({".plan", ".engine", ".pt", ".pth", ".xml", ".pb"})


def open_source(
    path: Path, name: str, *, read_model: ReadModel, version: int | None = None
) -> Source:
    """What lies at `path`, as version of model `name`; `Invalid` says why it cannot be pushed."""
    check_model_name(name)
    if not path.exists():
        raise Invalid(
            f"there is no {path}", why=f"the current folder is {Path.cwd()}", try_this="ls"
        )
    is_folder = path.is_dir()
    if version is not None and not is_folder:
        raise Invalid("--source-version is for folders with several versions")
    if not is_folder:
        return _file(path, name, read_model)
    if (path / MLMODEL).is_file():
        flavours = read_flavours(path)
        if flavours.model_file:
            return read_mlflow_folder(path, flavours, name, read_model)
        if flavours.convertible:
            raise _not_yet(f"the MLflow model {path} ({flavours.convertible})", _TF2ONNX)
        raise refused(path, flavours)
    if (path / SAVED_MODEL).is_file():
        raise _not_yet(f"the SavedModel {path}", _TF2ONNX.replace("DIR", str(path)))
    return read_triton_folder(path, version)


def _file(path: Path, name: str, read_model: ReadModel) -> Source:
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        return read_onnx_file(path, name, read_model)
    if suffix in _KERAS:
        raise _not_yet(
            f"the Keras model {path}", "model.export('model.onnx', format='onnx') in Keras"
        )
    if suffix in _BARE:
        raise Invalid(
            f"{path.name} alone does not say how it is to be served",
            why="its inputs and outputs stand in a config.pbtxt",
            try_this=f"a folder with config.pbtxt and 1/{path.name}",
        )
    raise Invalid(
        f"{path} is nothing that can be pushed",
        why="an .onnx file, or a folder of Triton's or MLflow's, is needed",
    )


def _not_yet(what: str, how: str) -> Invalid:
    """What has to be converted to ONNX first. The conversion of its own is not part of this."""
    error = Invalid(
        f"{what} has to be converted to ONNX, which this version of Servegate does not do",
        why="Triton's TensorFlow backend ended with release 25.02",
        try_this=f"{how}, then push model.onnx",
    )
    error.code = "not_yet"
    return error
