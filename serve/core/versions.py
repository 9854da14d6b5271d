"""A version as people publish it: its files by digest, its states, and its manifest.

An upload has the layout of one model folder of Triton, with exactly one version folder:

    config.pbtxt                 optional: generated where the model file says enough
    1/model.onnx  1/...          the version; the number in the upload does not matter
    labels.txt  ...              further files of the model, which Triton sees beside config.pbtxt
    preprocessing.json           } documents: for people and clients, never shown to Triton
    outputs.json                 }
    model_card.json              }
    flavours.json                further runnable forms, see `core/flavours.py`; not for Triton
    plans.json                   what is recorded of their TensorRT plans
    conversion.json  .html       } how it was made, and how right it is
    contract/contract.json       } golden cases that every admission must reproduce,
    contract/case-0.npz  ...     } never shown to Triton

A manifest has the same layout under the version's own number. It is written last and never changed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid

FORMAT = 1
CONFIG, PREPROCESSING, MODEL_CARD = "config.pbtxt", "preprocessing.json", "model_card.json"
OUTPUTS = "outputs.json"
CONVERSION, CONVERSION_PAGE = "conversion.json", "conversion.html"
UNVERIFIED = "unverified"  # a fact of a step in conversion.json: what the user has accepted
FLAVOURS, PLANS = "flavours.json", "plans.json"
CONTRACT = "contract"
DOCUMENTS = frozenset(
    {PREPROCESSING, OUTPUTS, MODEL_CARD, CONVERSION, CONVERSION_PAGE, FLAVOURS, PLANS}
)
MOST_FILES, DEEPEST = 10_000, 4
_PART = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")
_NUMBER = re.compile(r"^[1-9][0-9]{0,17}\Z")


class VersionState(StrEnum):
    """The state of a version, as decided and stored.

    `LOADING`, `READY` and `SERVING` are never stored: they follow from the route and from what the
    replicas have loaded.
    """

    UPLOADED = "uploaded"  # all bytes are here
    CHECKED = "checked"  # lint has passed
    PUBLISHED = "published"  # quarantine and contract have passed, the manifest is written
    LOADING = "loading"
    READY = "ready"
    SERVING = "serving"  # ready, and the route or a label sends calls to it
    RETIRED = "retired"  # unloaded; its files are kept
    FAILED = "failed"
    REMOVED = "removed"  # its files are gone; its number is never given again


@dataclass(frozen=True, slots=True, order=True)
class VersionFile:
    """One file: its path with `/` between the parts, its size in bytes, its digest (hex)."""

    path: str
    size: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {"path": self.path, "size": self.size, "sha256": self.sha256}


def check_files(files: Sequence[VersionFile]) -> tuple[VersionFile, ...]:
    """The files in the order of their paths; `Invalid` for the first that breaks a rule.

    The rules: parts of paths match `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`, at most four parts, at most
    10,000 files; no path twice, none that differs from another only by case, none below a file.
    """
    if not files:
        raise Invalid("the upload has no files")
    if len(files) > MOST_FILES:
        raise Invalid(f"the upload has {len(files)} files", why=f"the limit is {MOST_FILES}")
    folders: set[str] = set()
    names: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for file in files:
        parts = file.path.split("/")
        if len(parts) > DEEPEST or not all(_PART.match(part) for part in parts):
            raise Invalid(
                f"'{file.path[:300]}' is not a valid file path",
                why=f"a path has up to {DEEPEST} parts of letters, digits, '.', '_' or '-', and no "
                "part starts with '.' or '-'",
            )
        if not _SHA256.match(file.sha256):
            raise Invalid(f"the SHA-256 of '{file.path}' is not 64 hexadecimal digits")
        if not 0 <= file.size < 1 << 50 or sizes.setdefault(file.sha256, file.size) != file.size:
            raise Invalid(f"the size {file.size} of '{file.path}' is not valid")
        known = names.setdefault(file.path.lower(), file.path)
        if known != file.path:
            raise Invalid(f"'{file.path}' and '{known}' differ only in case")
        folders.update("/".join(parts[:n]).lower() for n in range(1, len(parts)))
    if len(names) < len(files):
        raise Invalid("a file path occurs twice")
    below = folders & names.keys()
    if below:
        raise Invalid(f"'{names[min(below)]}' is both a file and a folder")
    return tuple(sorted(files))


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one version by what they are for. Paths are whole."""

    number: int  # of the version folder
    version: tuple[VersionFile, ...]  # below the version folder
    model: tuple[VersionFile, ...]  # beside config.pbtxt, for Triton
    config: VersionFile | None
    documents: tuple[VersionFile, ...]
    contract: tuple[VersionFile, ...]

    @classmethod
    def of(cls, files: Iterable[VersionFile]) -> "Layout":
        """Sort the files; `Invalid` when there is not exactly one version folder."""
        ordered = sorted(files)
        numbers = {
            file.path.partition("/")[0]
            for file in ordered
            if "/" in file.path and _NUMBER.match(file.path.partition("/")[0])
        }
        if len(numbers) != 1:
            raise Invalid(
                "the upload must have exactly one version folder",
                why=f"found: {', '.join(sorted(numbers)) or 'none'}",
                try_this="put the files in a folder 1/, for example 1/model.onnx",
            )
        number = numbers.pop()
        version, model, documents, contract, config = [], [], [], [], None
        for file in ordered:
            first = file.path.partition("/")[0]
            if first == number:
                version.append(file)
            elif file.path == CONFIG:
                config = file
            elif file.path in DOCUMENTS:
                documents.append(file)
            elif first == CONTRACT:
                contract.append(file)
            else:
                model.append(file)
        return cls(
            int(number), tuple(version), tuple(model), config, tuple(documents), tuple(contract)
        )

    @property
    def for_triton(self) -> tuple[VersionFile, ...]:
        """What a Triton has to see: the version, the files beside it, and config.pbtxt."""
        return (*self.model, *self.version, *((self.config,) if self.config else ()))


def content_digest(files: Iterable[VersionFile]) -> str:
    """The digest of what an upload says, whatever number its version folder has; hexadecimal."""
    ordered = sorted(files)
    prefix = f"{Layout.of(ordered).number}/"
    lines = [
        ("*/" + file.path.removeprefix(prefix) if file.path.startswith(prefix) else file.path)
        + f" {file.size} {file.sha256}"
        for file in ordered
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a version comes from. `at` is seconds of the epoch; `tools` are names and versions."""

    author: str
    at: float
    source: str = ""
    git_commit: str = ""
    tools: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {
            "author": self.author,
            "at": self.at,
            "source": self.source,
            "git_commit": self.git_commit,
            "tools": dict(self.tools),
        }

    @classmethod
    def from_json(cls, data: Any) -> "Provenance":
        """Read what `to_json` gave; KeyError, TypeError or ValueError otherwise."""
        return cls(
            str(data["author"]),
            float(data["at"]),
            str(data["source"]),
            str(data["git_commit"]),
            MappingProxyType({str(k): str(v) for k, v in data["tools"].items()}),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published version: what its number means for ever.

    `physical` is its name in Triton; `content` the digest of what was uploaded (`content_digest`);
    `group` the digest of all that versions under one physical name have to share: the canonical
    configuration and the files beside it. `files` are as Triton needs them, config.pbtxt canonical.
    """

    model: str
    version: int
    physical: str
    content: str
    group: str
    files: tuple[VersionFile, ...]
    provenance: Provenance

    @property
    def layout(self) -> Layout:
        """The files by what they are for."""
        return Layout.of(self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """The JSON document that is kept; equal manifests are equal bytes."""
        page = {
            "format": FORMAT,
            "model": self.model,
            "version": self.version,
            "physical": self.physical,
            "content": self.content,
            "group": self.group,
            "files": [file.to_json() for file in self.files],
            "provenance": self.provenance.to_json(),
        }
        return json.dumps(page, sort_keys=True, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Read and check what `to_bytes` gave; `Invalid` when it does not hold together."""
        try:
            page = json.loads(data)
            if page["format"] != FORMAT:
                raise Invalid(f"the manifest's format {page['format']} is not supported")
            files = [
                VersionFile(str(f["path"]), int(f["size"]), str(f["sha256"])) for f in page["files"]
            ]
            one = cls(
                str(page["model"]),
                int(page["version"]),
                str(page["physical"]),
                str(page["content"]),
                str(page["group"]),
                check_files(files),
                Provenance.from_json(page["provenance"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Invalid("the manifest is malformed", why=repr(error)) from error
        if one.layout.number != one.version:
            raise Invalid("the manifest's files belong to another version")
        return one


def unverified_in(page: Any) -> str:
    """Why the report of a conversion says that nothing verifies it; empty for all others.

    `page` is the JSON of conversion.json, or anything that is no report.
    """
    steps = page.get("steps", ()) if isinstance(page, Mapping) else ()
    facts = [step.get("facts") for step in steps if isinstance(step, Mapping)]
    found = (str(each.get(UNVERIFIED, "")) for each in facts if isinstance(each, Mapping))
    return next(filter(None, found), "")
