"""The files of a version before they have digests: where each goes, and where its bytes are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from serve.core.errors import Invalid

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class UploadPiece:
    """One file: its path in the upload, and the file on this machine or its bytes themselves."""

    path: str
    origin: Path | bytes


@dataclass(frozen=True, slots=True)
class PushSource:
    """What is pushed: its files, and where they come from.

    `notes` are for people: what was chosen, generated or left out. `tags` and `tools` (names and
    versions) travel with the version.
    """

    kind: str
    name: str
    pieces: tuple[UploadPiece, ...]
    notes: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=lambda: _NONE)
    tools: Mapping[str, str] = field(default_factory=lambda: _NONE)

    def find(self, path: str) -> UploadPiece | None:
        """The piece with this path."""
        return next((piece for piece in self.pieces if piece.path == path), None)


def unreadable(path: Path, error: OSError) -> Invalid:
    """A file or folder that the operating system does not give us."""
    return Invalid(f"{path} cannot be read", why=error.strerror or str(error))


def read_small(path: Path, most: int = 1 << 20) -> bytes:
    """A file that is read whole; `Invalid` when it cannot be read, or is larger than `most`."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > most:
        raise Invalid(f"{path} is larger than {most} bytes", why="it has to be read into memory")
    return data
