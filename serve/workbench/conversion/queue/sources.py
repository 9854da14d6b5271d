"""The source within an upload: which of its files are the model, and which are samples.

| files besides the samples                            | the source     |
|------------------------------------------------------|----------------|
| `saved_model.pb`, and others in its folder and below | that folder    |
| one `.keras`, `.h5`, `.hdf5` or `.onnx`              | that file      |
| anything else                                        | none: refused  |

Whether it is what its name says, and harmless, the conversion finds out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from serve.control.artifacts.storage import ArtifactStorage
from serve.core.errors import Invalid
from serve.core.versions import VersionFile
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.conversion.sources.kinds import GRAPH_FILE, SUFFIXES

_AT_ROOT = "savedmodel"  # the name here of a SavedModel whose files have no folder in the upload


@dataclass(frozen=True, slots=True)
class ConversionSource:
    """The files of a conversion. `path` is the model's own, as the files are laid out here."""

    path: str
    files: tuple[tuple[str, VersionFile], ...]  # each with its path here

    @classmethod
    def of(cls, files: Sequence[VersionFile], request: ConversionRequest) -> "ConversionSource":
        """Find it; `Invalid` when there is none, more than one, or anything that belongs to none.

        The samples that the request names must be among the files.
        """
        aside = {path for path in (request.samples, request.labelled) if path}
        missing = aside - {file.path for file in files}
        if missing:
            raise Invalid(
                f"the upload has no file '{min(missing)[:300]}'",
                why="paths of samples are relative to the upload",
            )
        rest = {PurePosixPath(file.path) for file in files if file.path not in aside}
        root, path = _found(rest)
        placed = tuple(
            (file.path if file.path in aside else f"{root}{file.path}", file) for file in files
        )
        return cls(path, placed)

    async def bring(self, storage: ArtifactStorage, folder: Path) -> None:
        """Lay the files out below a folder."""
        for path, file in self.files:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            await storage.fetch(file, target)


def _found(paths: set[PurePosixPath]) -> tuple[str, str]:
    """What comes before the paths here, and the path of the model here."""
    graphs = sorted((p.parent for p in paths if p.name == GRAPH_FILE), key=lambda p: len(p.parts))
    if graphs:
        folder = graphs[0]
        if all(path.is_relative_to(folder) for path in paths):
            return ("", str(folder)) if folder.parts else (f"{_AT_ROOT}/", _AT_ROOT)
    elif len(paths) == 1:
        (path,) = paths
        if path.suffix.lower() in SUFFIXES:
            return "", str(path)
    raise Invalid(
        "the upload does not contain exactly one model",
        why=f"apart from samples, it contains {', '.join(map(str, sorted(paths)[:5])) or 'nothing'}"
        + (" and others" if len(paths) > 5 else ""),
        try_this="upload the files of one SavedModel, or one .keras, .h5 or .onnx file",
    )
