"""Uploads: files that are being sent, resumable at any byte, across crashes of either side.

An upload is a list of files with digests. Its id is a function of model, files and kind, so whoever
asks for it again goes on with it. Blobs that the storage has are not sent; the others grow in
staging files, one per blob, which all uploads share. The first byte that is missing is the length
of the staging file. A blob that is whole is verified and moved into the storage.

    folder/records/<id>.json              model, files, author, time, kind
    folder/staging/<SHA-256>-<size>       the beginning of a blob
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from serve.control.artifacts.durable import Disk, telling
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.arrivals import IncomingBlobs
from serve.control.uploads.upload import Upload, UploadKind
from serve.core.errors import Conflict, DigestMismatch, Invalid, NoSpace, NotFound, UnknownUpload
from serve.core.versions import VersionFile
from serve.processes.failpoints import reach

_log = logging.getLogger("servegate.uploads")
_EMPTY = hashlib.sha256().hexdigest()
_MOST = 256  # unfinished uploads; a record may have 10,000 files


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Bytes of one upload, of all unfinished ones together; seconds that one is kept."""

    upload: int = 20 << 30
    quota: int = 100 << 30
    keep: float = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class IncompleteBlob:
    """A blob that is not there yet: its size, and where it goes on."""

    sha256: str
    size: int
    offset: int


class Uploads:
    """All unfinished uploads. One process at a time may have the folder."""

    def __init__(
        self,
        folder: Path,
        storage: ArtifactStorage,
        *,
        limits: UploadLimits | None = None,
        wall: Callable[[], float] = time.time,
        disk: Disk | None = None,
    ) -> None:
        self._records = folder / "records"
        with telling("the upload folder"):
            self._records.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._disk = disk or Disk()
        self._storage = storage
        self._arrivals = IncomingBlobs(folder / "staging", storage, disk=self._disk)
        self._limits = limits or UploadLimits()
        self._wall = wall
        self._uploads = _read_records(self._records)
        self._beginning = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Uploads {len(self._uploads)} unfinished>"

    async def begin(
        self,
        model: str,
        files: Sequence[VersionFile],
        author: str,
        kind: UploadKind = UploadKind.VERSION,
    ) -> Upload:
        """Begin an upload, or go on with the one of the same model, files and kind.

        `Invalid` for names, files and sizes that cannot be, `NoSpace` beyond the quota.
        """
        upload = Upload.of(model, files, author, self._wall(), kind)
        async with self._beginning:
            if known := self._uploads.get(upload.id):
                upload = replace(known, begun=upload.begun)
            else:
                await self._require_room(upload)
            await self._add_empty(upload)
            await self._arrivals.in_thread(self._write_record, upload)
            self._uploads[upload.id] = upload
        reach("upload.begun")
        return upload

    def get(self, identity: str) -> Upload:
        """The upload of this id; `UnknownUpload`."""
        try:
            return self._uploads[identity]
        except KeyError:
            raise UnknownUpload(identity) from None

    def all(self) -> tuple[Upload, ...]:
        """Every unfinished upload, the oldest first."""
        return tuple(sorted(self._uploads.values(), key=lambda one: (one.begun, one.id)))

    async def missing(self, identity: str) -> tuple[IncompleteBlob, ...]:
        """The blobs that are still to be sent, in the order of their paths.

        One of which an earlier process had every byte is verified and stored first.
        """
        blobs = self.get(identity).blobs
        offsets = await asyncio.gather(*map(self._arrivals.offset, blobs))
        return tuple(
            IncompleteBlob(file.sha256, file.size, offset)
            for file, offset in zip(blobs, offsets, strict=True)
            if offset is not None
        )

    async def offset(self, identity: str, sha256: str) -> int:
        """Where a blob goes on; its size when it is there."""
        file = self.blob(identity, sha256)
        offset = await self._arrivals.offset(file)
        return file.size if offset is None else offset

    def blob(self, identity: str, sha256: str) -> VersionFile:
        """The first file of an upload that has this digest; `UnknownUpload`, `NotFound`."""
        for file in self.get(identity).blobs:
            if file.sha256 == sha256:
                return file
        raise NotFound(f"the upload has no blob '{sha256[:100]}'")

    async def append(
        self, identity: str, sha256: str, offset: int, pieces: AsyncIterator[bytes]
    ) -> int:
        """Take bytes of a blob from `offset` on; gives where it goes on. The last byte stores it.

        `WrongOffset`, also when another client is faster; `Invalid` for more than was announced;
        `DigestMismatch`, and it starts anew; `NoSpace`, and it goes on once there is some.
        """
        return await self._arrivals.append(self.blob(identity, sha256), offset, pieces)

    async def require_whole(self, identity: str) -> Upload:
        """The upload, all of whose bytes are there; `Conflict` says what is missing."""
        missing = {one.sha256: one for one in await self.missing(identity)}
        upload = self.get(identity)
        if missing:
            names = [file.path for file in upload.blobs if file.sha256 in missing]
            left = sum(one.size - one.offset for one in missing.values())
            raise Conflict(
                f"{len(names)} of {len(upload.blobs)} blobs of the upload are incomplete",
                why=f"{left} bytes are missing from {', '.join(names[:5])}"
                + (" and others" if len(names) > 5 else ""),
                try_this="push again; the upload resumes",
            )
        return upload

    async def forget(self, identity: str) -> None:
        """Drop an upload and the staging files that no other one needs; unknown ones are none."""
        async with self._beginning:
            upload = self._uploads.pop(identity, None)
            if upload is None:
                return
            await self._arrivals.in_thread(self._remove_record, identity)
            needed = {(file.sha256, file.size) for file in self._needed()}
            for file in upload.blobs:
                if (file.sha256, file.size) not in needed:
                    await self._arrivals.drop(file)

    async def sweep(self, needed: Container[str] = ()) -> int:
        """Drop uploads that are too old, except those `needed`, and files that belong to none.

        Gives how many uploads and files went.
        """
        late = self._wall() - self._limits.keep
        old = [one.id for one in self.all() if one.begun < late and one.id not in needed]
        for identity in old:
            await self.forget(identity)
        async with self._beginning:
            orphans = await self._arrivals.in_thread(self._sweep_records)
            orphans += await self._arrivals.sweep(self._needed())
        return len(old) + orphans

    async def _require_room(self, upload: Upload) -> None:
        size = sum(file.size for file in upload.files)
        if size > self._limits.upload:
            raise Invalid(
                f"an upload of {size} bytes is too large",
                why=f"the limit is {self._limits.upload}",
                try_this="raise --max-upload-bytes",
            )
        if len(self._uploads) >= _MOST:
            raise NoSpace(f"there are {_MOST} unfinished uploads", try_this="finish or delete some")
        blobs = {(f.sha256, f.size): f for f in (*upload.blobs, *self._needed())}
        if sum(file.size for file in blobs.values()) > self._limits.quota:
            await self._require_quota(tuple(blobs.values()))

    async def _require_quota(self, blobs: Sequence[VersionFile]) -> None:
        present = await asyncio.gather(*map(self._arrivals.has, blobs))
        absent = sum(
            file.size for file, is_there in zip(blobs, present, strict=True) if not is_there
        )
        if absent > self._limits.quota:
            raise NoSpace(
                "the quota for unfinished uploads is used up",
                why=f"they would need {absent} bytes, and the quota is {self._limits.quota}",
                try_this="finish or delete some, or raise --upload-quota",
            )

    async def _add_empty(self, upload: Upload) -> None:
        """A file without bytes need not be sent."""
        for file in upload.blobs:
            if file.size == 0:
                if file.sha256 != _EMPTY:
                    raise DigestMismatch(f"the SHA-256 of the empty file '{file.path}' is wrong")
                await self._storage.add_bytes(b"")

    def _needed(self) -> Iterator[VersionFile]:
        return (file for one in self._uploads.values() for file in one.blobs)

    def _write_record(self, upload: Upload) -> None:
        with telling("an upload record"):
            path = self._records / f"{upload.id}.json"
            self._disk.put(path, upload.to_bytes(), drafts=self._records)

    def _remove_record(self, identity: str) -> None:
        with telling("an upload record"):
            (self._records / f"{identity}.json").unlink(missing_ok=True)
            self._disk.sync_folder(self._records)

    def _sweep_records(self) -> int:
        """Take away records that say nothing, and drafts of them."""
        with telling("the upload records"):
            known = {f"{identity}.json" for identity in self._uploads}
            orphans = [path for path in self._records.iterdir() if path.name not in known]
            for path in orphans:
                path.unlink(missing_ok=True)
        return len(orphans)


def _read_records(folder: Path) -> dict[str, Upload]:
    """The uploads of an earlier process."""
    found: dict[str, Upload] = {}
    for path in folder.glob("*.json"):
        with telling("the upload records"):
            data = path.read_bytes()
        try:
            upload = Upload.from_bytes(data)
        except (ValueError, KeyError, TypeError, RecursionError, Invalid) as error:
            _log.warning("the upload record %s cannot be read: %s", path.name, error)
            continue
        found[upload.id] = upload
    return found
