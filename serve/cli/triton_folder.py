"""A model folder of Triton, as the files of one version.

Links are followed only within the folder: one that leads out of it is refused, because what it
names is not part of what is pushed. Dot files and `__pycache__` are left out, and that is said.
"""

from collections.abc import Iterator
from pathlib import Path

from serve.cli.pieces import PushSource, UploadPiece, read_small, unreadable
from serve.core.errors import Invalid
from serve.core.versions import CONFIG, MOST_FILES
from serve.triton.layout import ModelFolder

# An upload is files only, and a version needs one: an ensemble's version folder is empty.
PLACEHOLDER = "placeholder"
_MOST_NAMED = 5  # of the files that are left out


def read_triton_folder(folder: Path, version: int | None = None) -> PushSource:
    """One version of the folder: the one that is asked for, else the highest.

    `Invalid` when there is no such version, or a file cannot be part of it.
    """
    numbers = versions_of(folder)
    if not numbers:
        raise _no_version(folder)
    if version is not None and version not in numbers:
        raise Invalid(
            f"{folder} has no version {version}",
            why=f"its versions are {', '.join(map(str, numbers))}",
        )
    chosen = version or numbers[-1]
    walk = _Walk(folder, leave_out={str(number) for number in numbers if number != chosen})
    pieces = list(walk.pieces())
    notes = []
    if len(numbers) > 1:
        others = ", ".join(str(number) for number in numbers if number != chosen)
        notes.append(f"using version folder {chosen}, not {others} (see --source-version)")
    if not any(piece.path.startswith(f"{chosen}/") for piece in pieces):
        pieces.append(_placeholder(folder, chosen))
    if walk.skipped:
        named = ", ".join(walk.skipped[:_MOST_NAMED])
        rest = len(walk.skipped) - _MOST_NAMED
        notes.append(f"skipped: {named}" + (f" and {rest} more" if rest > 0 else ""))
    return PushSource("triton", folder.resolve().name, tuple(pieces), tuple(notes))


def versions_of(folder: Path) -> tuple[int, ...]:
    """The version folders there are, ascending."""
    try:
        return ModelFolder(folder).versions()
    except OSError as error:
        raise unreadable(folder, error) from error


class _Walk:
    """One walk over the folder; `skipped` grows while it goes on."""

    def __init__(self, folder: Path, *, leave_out: set[str]) -> None:
        self._folder = folder
        self._root = folder.resolve()
        self._leave_out = leave_out
        self.skipped: list[str] = []

    def pieces(self) -> Iterator[UploadPiece]:
        """Every file that belongs to the version."""
        for count, piece in enumerate(self._below(self._folder, (self._root,))):
            if count == MOST_FILES:
                raise Invalid(
                    f"{self._folder} has more than {MOST_FILES} files",
                    try_this="push the folder of one model, not a repository or a checkout",
                )
            yield piece

    def _below(self, folder: Path, above: tuple[Path, ...]) -> Iterator[UploadPiece]:
        """`above` are the real folders on the way here, so that no link leads round in circles."""
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            raise unreadable(folder, error) from error
        for entry in entries:
            path = entry.relative_to(self._folder).as_posix()
            if path in self._leave_out:
                continue
            real = self._real(entry, path)
            if entry.name.startswith(".") or entry.name == "__pycache__":
                self.skipped.append(path)
            elif real.is_dir() and real not in above:
                yield from self._below(entry, (*above, real))
            elif real.is_file():
                yield UploadPiece(path, real)
            else:
                self.skipped.append(path)

    def _real(self, entry: Path, path: str) -> Path:
        """Where the entry really is, within the folder."""
        if not entry.is_symlink():
            return entry.resolve()
        try:
            real = entry.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise Invalid(f"the link '{path}' is broken", why=str(error)) from error
        if not real.is_relative_to(self._root):
            raise Invalid(
                f"the link '{path}' points outside the folder",
                why=f"its target is {real}, which is not in {self._folder}",
                try_this=f"replace it with a copy: cp --remove-destination {real} {entry}",
            )
        return real


def _placeholder(folder: Path, version: int) -> UploadPiece:
    """What stands in the empty version folder of an ensemble; `Invalid` for other models."""
    from serve.triton.config import parse

    config = folder / CONFIG
    text = read_small(config).decode("utf-8", "replace") if config.is_file() else ""
    if not parse(text).composing_models:
        raise Invalid(
            f"the version folder {folder / str(version)} is empty",
            try_this=f"put the model file there, for example {version}/model.onnx",
        )
    return UploadPiece(f"{version}/{PLACEHOLDER}", b"")


def _no_version(folder: Path) -> Invalid:
    """Why the folder is no model folder, with what it looks like instead."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise unreadable(folder, error) from error
    if not entries:
        return Invalid(f"{folder} is empty", try_this="push a model folder or an .onnx file")
    models = [entry.name for entry in entries if entry.is_dir() and versions_of(entry)]
    if models:
        return Invalid(
            f"{folder} is a model repository, not one model",
            why=f"it contains the models {', '.join(models[:10])}",
            try_this=f"servegate model push {folder / models[0]} {models[0]}",
        )
    files = [entry for entry in entries if entry.suffix == ".onnx"]
    if files:
        return Invalid(
            f"{folder} has no version folder",
            why=f"it only contains {', '.join(file.name for file in files[:10])}",
            try_this=f"servegate model push {files[0]} NAME",
        )
    return Invalid(
        f"cannot push {folder}",
        why="it has no numbered version folder, MLmodel or saved_model.pb",
        try_this="push a folder with 1/model.onnx and config.pbtxt, or an .onnx file",
    )
