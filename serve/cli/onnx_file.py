"""One ONNX file as a version: the file, its external data, and a configuration written for it."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from serve.cli.pieces import PushSource, UploadPiece, unreadable
from serve.core.errors import Invalid
from serve.core.versions import CONFIG
from serve.tensors.signature import ModelSignature

ReadModel = Callable[[Path], ModelSignature]
MODEL = "1/model.onnx"


def read_onnx_file(path: Path, name: str, read_model: ReadModel) -> PushSource:
    """The file as version 1 of model `name`; `Invalid` when it is no model, or lacks its data."""
    from serve.triton.config_generation import generate

    signature = read_model(path)
    beside = external_data(path, signature)
    text = generate(name, signature)
    notes = ["generated config.pbtxt from the model's inputs and outputs"]
    if beside:
        notes.append(f"included external data: {', '.join(piece.path[2:] for piece in beside[:5])}")
    return PushSource(
        "onnx",
        path.name,
        (UploadPiece(CONFIG, text.encode()), UploadPiece(MODEL, path.resolve()), *beside),
        tuple(notes),
    )


def external_data(path: Path, signature: ModelSignature) -> tuple[UploadPiece, ...]:
    """The files beside `path` in which the model keeps tensors, each once."""
    named = signature.facts.get("external_data") or ()
    return tuple(_beside(path, each) for each in sorted({str(each) for each in _listed(named)}))


def _listed(named: object) -> Sequence[object]:
    return named if isinstance(named, list | tuple) else ()


def _beside(path: Path, name: str) -> UploadPiece:
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts:
        raise Invalid(f"{path.name} keeps data in '{name}', which is outside its folder")
    file = path.parent / inner
    try:
        real = file.resolve(strict=True)
    except OSError as error:
        raise unreadable(file, error) from error
    if not real.is_relative_to(path.parent.resolve()) or not real.is_file():
        raise Invalid(f"{path.name} keeps data in '{name}', which is not a file in its folder")
    return UploadPiece(f"1/{inner}", real)
