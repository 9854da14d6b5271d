"""Garbage: manifests of versions that are none, and blobs that nothing needs.

A blob is needed by the manifests that stay, by every unfinished upload, the configuration by a
version on its way, and by what else is `kept`. What cannot be read might need anything: then
nothing is collected at all.
A number has its record before its manifest, so a manifest without any record was not left by a
crash: the store may be another one, or an old copy. Such manifests stay, with all they need.
"""

import hashlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.publication.records import IN_PROGRESS, LIVING, Records
from serve.control.uploads.uploads import Uploads

_log = logging.getLogger("servegate.garbage")
Name = tuple[str, int]  # a model and a version


@dataclass(frozen=True, slots=True)
class Garbage:
    """One thing that goes: a `version`, `manifest` or `blob`, its bytes, and why it goes."""

    kind: str
    name: str
    size: int
    why: str


class Heap:
    """Finds garbage in the storage, and takes it away. `kept` are digests of blobs that stay."""

    def __init__(
        self,
        records: Records,
        storage: ArtifactStorage,
        uploads: Uploads,
        *,
        kept: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._records = records
        self._storage = storage
        self._uploads = uploads
        self._kept = kept
        self._blobs: dict[str, frozenset[str]] = {}  # of uploads, by id, while sweeping

    def __repr__(self) -> str:
        return f"<Heap {self._storage}>"

    async def sweep(self, gone: Collection[Name], *, grace: float, dry_run: bool) -> list[Garbage]:
        """Take away what nothing needs once the versions `gone` are; gives what that is.

        `Records.collecting` is held. Blobs that are younger than `grace` seconds stay.
        """
        self._blobs.clear()
        stay, orphans = await self._manifests(gone)
        needed = await self._needed(stay)
        late = self._records.now - grace
        found = [
            Garbage("manifest", f"{model} version {number}", 0, "its version failed or was removed")
            for model, number in orphans
            if (model, number) not in gone
        ]
        blobs = [one async for one in self._storage.blobs()]
        if not dry_run:
            for model, number in orphans:
                await self._storage.remove_manifest(model, number)
        for sha256, size, written in blobs:
            # Uploads may begin meanwhile, and rely on what they were told is there.
            if sha256 in needed or written > late or self._is_uploaded(sha256):
                continue
            if not dry_run:
                await self._storage.remove_blob(sha256)
            found.append(Garbage("blob", sha256, size, "nothing uses it"))
        return found

    async def _manifests(self, gone: Collection[Name]) -> tuple[list[Name], list[Name]]:
        """Those that stay, and those whose version has failed or is removed."""
        states = {(one.model, one.number): one.state for one in self._records.all()}
        stay: list[Name] = []
        orphans: list[Name] = []
        strange = 0
        async for name in self._storage.manifests():
            strange += name not in states
            is_living = states.get(name) in LIVING or name not in states
            (stay if is_living and name not in gone else orphans).append(name)
        if strange:
            _log.warning("kept %d manifests in %r that have no record", strange, self._storage)
        return stay, orphans

    async def _needed(self, stay: Collection[Name]) -> set[str]:
        """The digests of all blobs that have to stay, but for uploads."""
        needed = set(self._kept())
        for model, number in stay:
            manifest = await self._storage.manifest(model, number)
            needed.update(file.sha256 for file in manifest.files)
        for version in self._records.all():
            if version.state in IN_PROGRESS and version.config:
                needed.add(hashlib.sha256(version.config.encode()).hexdigest())
        return needed

    def _is_uploaded(self, sha256: str) -> bool:
        """Whether an unfinished upload has this blob."""
        uploads = self._uploads.all()
        for upload in uploads:
            if upload.id not in self._blobs:
                self._blobs[upload.id] = frozenset(file.sha256 for file in upload.files)
        return any(sha256 in self._blobs[upload.id] for upload in uploads)
