"""Golden cases that people add to a published version, beside those that came with it.

What is published never changes. So an added case is a decision, kind `contract`, key
`model:number`, and its arrays are blobs of the storage:

    {"cases": [{"id": "4f0c…", "name": "a seven", "author": "ada", "at": 1790000000.0,
                "files": [{"path": "contract/contract.json", "size": 210, "sha256": "…"},
                          {"path": "contract/case-0.npz", "size": 1350, "sha256": "…"}]}]}

The files of each case are a whole contract with one case, see `tensors/contracts.py`. Both kinds
are asked of every replica that shall be called for the version.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.versions import PublishedVersion
from serve.core.versions import VersionFile, VersionState
from serve.tensors.contracts import MOST_BYTES, Case, Contract

CONTRACT = "contract"  # the kind of decision


@dataclass(frozen=True, slots=True)
class Added:
    """What is decided of one added case. `at` is seconds of the epoch."""

    id: str
    name: str
    author: str
    at: float
    files: tuple[VersionFile, ...]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    def to_body(self) -> dict[str, Any]:
        """What the store keeps."""
        page = {"id": self.id, "name": self.name, "author": self.author, "at": self.at}
        return page | {"files": [file.to_json() for file in self.files]}


def added_of(decisions: Decisions, version: PublishedVersion) -> tuple[Added, ...]:
    """The cases that were added to a version, in their order."""
    body = decisions.entry(CONTRACT, version.key).body
    return _read(body) if body else ()


def has_cases(decisions: Decisions, version: PublishedVersion) -> bool:
    """Whether there is anything that a version must answer."""
    return version.has_contract or bool(added_of(decisions, version))


def blobs_of_cases(decisions: Decisions) -> frozenset[str]:
    """The digests of blobs that stay for the added cases of versions that are not removed."""
    return frozenset(
        file.sha256
        for versions in decisions.versions.values()
        for version in versions.values()
        if version.state is not VersionState.REMOVED
        for one in added_of(decisions, version)
        for file in one.files
    )


async def added_case(storage: ArtifactStorage, added: Added) -> Case:
    """The arrays of an added case; `NotFound`, `Invalid`, `DigestMismatch`."""
    files = {file.path: await storage.read(file.sha256, most=MOST_BYTES) for file in added.files}
    contract = await asyncio.to_thread(Contract.read, files)
    return contract.cases[0]


def _read(body: Mapping[str, Any]) -> tuple[Added, ...]:
    return tuple(
        Added(
            str(one["id"]),
            str(one["name"]),
            str(one["author"]),
            float(one["at"]),
            tuple(VersionFile(f["path"], int(f["size"]), f["sha256"]) for f in one["files"]),
        )
        for one in body["cases"]
    )
