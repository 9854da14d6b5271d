"""One upload: files that are on their way, what they are to become, and its record.

| kind    | its files are                                              | it becomes                |
|---------|------------------------------------------------------------|---------------------------|
| version | a model folder of Triton with one version folder           | a version, by its commit  |
| source  | a SavedModel, .keras, .h5 or .onnx, with samples beside it | a version, by conversion  |

The rules for paths, sizes and digests are the same for both.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from serve.core.names import check_model_name
from serve.core.versions import VersionFile, check_files, content_digest


class UploadKind(StrEnum):
    """What an upload will become: a version, or the source of a conversion."""

    VERSION = "version"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Upload:
    """Files that are on their way. `begun`: when it was last asked for (seconds, epoch).

    `content` is the digest of a version's content, or of a source's files.
    """

    id: str
    model: str
    files: tuple[VersionFile, ...]
    content: str
    author: str
    begun: float
    kind: UploadKind = UploadKind.VERSION

    @property
    def blobs(self) -> tuple[VersionFile, ...]:
        """One file for each blob, in the order of their paths."""
        first: dict[str, VersionFile] = {}
        for file in self.files:
            first.setdefault(file.sha256, file)
        return tuple(first.values())

    def to_bytes(self) -> bytes:
        """The record that is kept."""
        page = {
            "model": self.model,
            "files": [file.to_json() for file in self.files],
            "author": self.author,
            "begun": self.begun,
            "kind": str(self.kind),
        }
        return json.dumps(page).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Upload":
        """Read what `to_bytes` gave; KeyError, TypeError, ValueError or Invalid otherwise."""
        page = json.loads(data)
        files = [VersionFile(file["path"], file["size"], file["sha256"]) for file in page["files"]]
        kind = UploadKind(page.get("kind", UploadKind.VERSION))  # which older records do not have
        return cls.of(page["model"], files, page["author"], float(page["begun"]), kind)

    @classmethod
    def of(
        cls,
        model: str,
        files: Sequence[VersionFile],
        author: str,
        begun: float,
        kind: UploadKind = UploadKind.VERSION,
    ) -> "Upload":
        """The upload of these files, checked; `Invalid`."""
        checked = check_files(files)
        lines = [check_model_name(model), *(f"{f.path} {f.size} {f.sha256}" for f in checked)]
        if kind is UploadKind.SOURCE:
            lines.insert(0, str(kind))  # the same files may be a version's, too
        identity = _digest(lines)[:32]
        content = _digest(lines[2:]) if kind is UploadKind.SOURCE else content_digest(checked)
        return cls(identity, model, checked, content, author, begun, kind)


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
