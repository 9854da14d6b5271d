"""What `servegate model push PATH` can send: which kind of thing lies there, and its files.

| what is there                       | what becomes of it                                        |
|-------------------------------------|-----------------------------------------------------------|
| a folder with `MLmodel`             | its ONNX flavour; others are refused with what to do      |
| a folder with `saved_model.pb`      | has to be converted: `--convert`                          |
| a folder with numbered folders      | a model folder of Triton: one version of it               |
| `FILE.onnx`                         | the file, its external data, a generated config.pbtxt     |
| `FILE.keras`, `FILE.h5`             | has to be converted: `--convert`                          |
"""

from pathlib import Path

from serve.cli.mlflow_folder import MLMODEL, read_flavours, read_mlflow_folder, refused
from serve.cli.onnx_file import ReadModel, read_onnx_file
from serve.cli.pieces import PushSource
from serve.cli.triton_folder import read_triton_folder
from serve.core.errors import Invalid
from serve.core.names import check_model_name

SAVED_MODEL = "saved_model.pb"
_IN_MLFLOW = ("data/model.keras", "data/model.h5", "data/model", "tf2model")
_KERAS = frozenset({".keras", ".h5", ".hdf5"})
_BARE = frozenset({".plan", ".engine", ".pt", ".pth", ".xml", ".pb"})


def open_source(
    path: Path, name: str, *, read_model: ReadModel, version: int | None = None
) -> PushSource:
    """What lies at `path`, as version of model `name`; `Invalid` says why it cannot be pushed."""
    check_model_name(name)
    if not path.exists():
        raise Invalid(f"{path} does not exist", why=f"the current folder is {Path.cwd()}")
    is_folder = path.is_dir()
    if version is not None and not is_folder:
        raise Invalid("--source-version needs a folder with several versions")
    if not is_folder:
        return _file(path, name, read_model)
    if (path / MLMODEL).is_file():
        flavours = read_flavours(path)
        if flavours.model_file:
            return read_mlflow_folder(path, flavours, name, read_model)
        if flavours.convertible:
            raise _convertible(f"the MLflow model {path} ({flavours.convertible})")
        raise refused(path, flavours)
    if (path / SAVED_MODEL).is_file():
        raise _convertible(f"the SavedModel {path}")
    return read_triton_folder(path, version)


def _file(path: Path, name: str, read_model: ReadModel) -> PushSource:
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        return read_onnx_file(path, name, read_model)
    if suffix in _KERAS:
        raise _convertible(f"the Keras model {path}")
    if suffix in _BARE:
        raise Invalid(
            f"cannot push {path.name} alone",
            why="Triton needs a config.pbtxt with its inputs and outputs",
            try_this=f"push a folder with config.pbtxt and 1/{path.name}",
        )
    raise Invalid(
        f"cannot push {path}",
        why="expected an .onnx file, or a Triton or MLflow model folder",
    )


def convertible(path: Path) -> Path | None:
    """What `--convert` converts there: a SavedModel's folder or a Keras file, in MLflow's too."""
    if path.is_file():
        return path if path.suffix.lower() in _KERAS else None
    if (path / SAVED_MODEL).is_file():
        return path
    if not (path / MLMODEL).is_file() or not read_flavours(path).convertible:
        return None
    inside = (path / each for each in _IN_MLFLOW)
    return next((each for each in inside if each.is_file() or (each / SAVED_MODEL).is_file()), None)


def _convertible(what: str) -> Invalid:
    """What has to be converted to ONNX first, and that it can be."""
    error = Invalid(
        f"{what} has to be converted to ONNX",
        why="Triton has had no TensorFlow backend since release 25.02",
        try_this="pass --convert to convert it and verify the result",
    )
    error.code = "needs_conversion"
    return error
