"""Golden cases that are pushed with a version: `--golden FILE.npz`."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from serve.cli.onnx_file import MODEL, ReadModel
from serve.cli.pieces import PushSource, UploadPiece, read_small
from serve.core.errors import Invalid
from serve.core.versions import CONFIG, CONTRACT

if TYPE_CHECKING:
    from serve.tensors.expected_outputs import Tolerance

_BELOW = f"{CONTRACT}/"


def with_golden(
    source: PushSource, files: Sequence[Path], tolerance: "Tolerance", read_model: ReadModel
) -> PushSource:
    """The source with these cases beside those that it has; `Invalid` when a file is none."""
    from serve.tensors.contracts import MOST_BYTES, Contract, cases_from_npz, write_contract

    inputs, outputs = _names(source, read_model)
    own = {piece.path: piece for piece in source.pieces if piece.path.startswith(_BELOW)}
    cases = list(Contract.read({path: data_of(own[path]) for path in own}).cases) if own else []
    for file in files:
        data = read_small(file, MOST_BYTES)
        try:
            cases += cases_from_npz(
                data, inputs=inputs, outputs=outputs, name=file.stem, tolerance=tolerance
            )
        except Invalid as error:
            raise Invalid(
                f"'{file}' is not a golden case",
                why=str(error),
                try_this="np.savez(FILE, **{'input/x': x, 'output/y': y})",
            ) from error
    written = [UploadPiece(path, data) for path, data in write_contract(cases).items()]
    kept = [piece for piece in source.pieces if piece.path not in own]
    return replace(source, pieces=(*kept, *written))


def data_of(piece: UploadPiece) -> bytes:
    """The bytes of a small piece."""
    from serve.tensors.contracts import MOST_BYTES

    if isinstance(piece.origin, bytes):
        return piece.origin
    return read_small(piece.origin, MOST_BYTES)


def _names(source: PushSource, read_model: ReadModel) -> tuple[Collection[str], Collection[str]]:
    """The names of inputs and outputs, from config.pbtxt or else from the model itself."""
    from serve.triton.config import parse

    config = source.find(CONFIG)
    if config is not None:
        message = parse(data_of(config).decode("utf-8", "replace")).message
        if message.input or message.output:
            return [each.name for each in message.input], [each.name for each in message.output]
    model = next((p for p in source.pieces if p.path.endswith(MODEL[1:])), None)
    if model is None or isinstance(model.origin, bytes):
        return (), ()
    signature = read_model(model.origin)
    return [each.name for each in signature.inputs], [each.name for each in signature.outputs]
