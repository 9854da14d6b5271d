"""The storage: what was published, for ever: blobs by their digest, and one manifest per version.

    blobs/sha256/<two hex digits>/<SHA-256>     bytes, never changed
    manifests/<model>/<version>.json            written last, once

A version is published when its manifest is there. Everything else is found from manifests, so a
blob that none of them names is garbage.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from serve.control.artifacts.durable import Disk, create, draft_in, telling
from serve.control.artifacts.objects import Objects
from serve.core.errors import CannotStart, Conflict, DigestMismatch, Invalid
from serve.core.versions import Manifest, VersionFile

_BLOB = re.compile(r"^blobs/sha256/[0-9a-f]{2}/([0-9a-f]{64})\Z")
_MANIFEST = re.compile(r"^manifests/([^/]+)/([1-9][0-9]{0,17})\.json\Z")
_LARGEST_MANIFEST = 1 << 24  # bytes
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


class ArtifactStorage:
    """Blobs and manifests in a folder or a bucket."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def __repr__(self) -> str:
        return f"<ArtifactStorage {self._objects!r}>"

    @property
    def objects(self) -> Objects:
        """Where everything lies, for what is kept beside blobs and manifests."""
        return self._objects

    @classmethod
    def of(cls, url: str, **config: str) -> "ArtifactStorage":
        """The storage at a folder's path or at `s3://`, `gs://` or `az://`; `CannotStart`.

        Credentials and endpoint come from the environment; `config` goes before it (see obstore).
        """
        from serve.control.artifacts.folder import FolderObjects

        if "://" not in url:
            return cls(FolderObjects(Path(url)))
        if not url.startswith(("s3://", "gs://", "az://")):
            raise CannotStart(
                f"'{url}' is not a storage URL",
                try_this="use a folder, s3://BUCKET/PREFIX, gs://… or az://…",
            )
        from serve.control.artifacts.bucket import BucketObjects  # obstore, which few need

        return cls(BucketObjects(url, **config))

    async def has(self, sha256: str, size: int) -> bool:
        """Whether the blob is there, with this size."""
        return await self._objects.size(blob_key(sha256)) == size

    async def add_file(self, path: Path, file: VersionFile) -> None:
        """Keep a file whose digest somebody has verified; the file at `path` is gone then.

        `NoSpace` and `Unavailable` leave it as it is.
        """
        with telling("a blob"):
            size = await asyncio.to_thread(lambda: path.stat(follow_symlinks=False).st_size)
        if size != file.size:
            raise DigestMismatch(f"'{file.path}' has {size} bytes, not {file.size}")
        await self._objects.move_in(blob_key(file.sha256), path, size)
        with telling("a blob"):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def add_bytes(self, data: bytes) -> tuple[int, str]:
        """Keep a small blob; gives its size and digest."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not await self.has(sha256, len(data)):
            await self._objects.put(blob_key(sha256), data)
        return len(data), sha256

    async def read(self, sha256: str, *, most: int) -> bytes:
        """A blob of at most `most` bytes; `NotFound`, `Invalid` when larger, `DigestMismatch`."""
        data = await self._whole(blob_key(sha256), most)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _damaged(sha256)
        return data

    def stream(self, sha256: str, start: int = 0) -> AsyncIterator[bytes]:
        """The blob's bytes from `start` on, in pieces, not verified; `NotFound`."""
        return self._objects.read(blob_key(sha256), start)

    def local_path(self, sha256: str) -> Path | None:
        """Where the blob lies on this machine if it is there, for hard links; None for a bucket."""
        return self._objects.path(blob_key(sha256))

    async def fetch(self, file: VersionFile, target: Path) -> None:
        """Bring a blob to a path whose folder exists; it replaces what is there.

        A hard link where the storage is a folder on the same disk and the blob has none yet: of
        that only the size is verified. Otherwise a copy with a verified digest. `NotFound`,
        `DigestMismatch`, `NoSpace`.
        """
        local = self.local_path(file.sha256)
        with telling(f"'{file.path}'"):
            linked = local is not None and await asyncio.to_thread(_linked, local, file, target)
        if not linked:
            await self._copy(file, target)

    async def put_manifest(self, manifest: Manifest) -> None:
        """Publish; the same manifest again is no error, another one is a `Conflict`."""
        data, key = manifest.to_bytes(), _manifest(manifest.model, manifest.version)
        if await self._objects.put_new(key, data):
            return
        if await self._whole(key, _LARGEST_MANIFEST) != data:
            raise Conflict(
                f"version {manifest.version} of model '{manifest.model}' is already published",
                why="its content differs, and a published version never changes",
            )

    async def manifest(self, model: str, version: int) -> Manifest:
        """The manifest of a published version; `NotFound`, `Invalid` when it is damaged."""
        return Manifest.from_bytes(await self._whole(_manifest(model, version), _LARGEST_MANIFEST))

    async def manifests(self) -> AsyncIterator[tuple[str, int]]:
        """Model and number of every published version."""
        async for found in self._objects.list("manifests"):
            if match := _MANIFEST.match(found.key):
                yield match[1], int(match[2])

    async def remove_manifest(self, model: str, version: int) -> None:
        """Take a version back; one that is not there is no error."""
        await self._objects.remove(_manifest(model, version))

    async def blobs(self) -> AsyncIterator[tuple[str, int, float]]:
        """Digest, size and time of writing (seconds, epoch) of every blob."""
        async for found in self._objects.list("blobs"):
            if match := _BLOB.match(found.key):
                yield match[1], found.size, found.at

    async def remove_blob(self, sha256: str) -> None:
        """Delete a blob; one that is not there is no error."""
        await self._objects.remove(blob_key(sha256))

    async def _whole(self, key: str, most: int) -> bytes:
        data = bytearray()
        async with contextlib.aclosing(self._objects.read(key)) as pieces:
            async for piece in pieces:
                data += piece
                if len(data) > most:
                    raise Invalid(f"'{key}' is larger than {most} bytes")
        return bytes(data)

    async def _copy(self, file: VersionFile, target: Path) -> None:
        """Write the blob as a draft beside the target; verify, sync and rename it."""
        copy = _Copy(draft_in(target.parent))
        try:
            async with contextlib.aclosing(self._objects.read(blob_key(file.sha256))) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(copy.take, piece)
            if (copy.size, copy.digest.hexdigest()) != (file.size, file.sha256):
                raise _damaged(file.sha256)
            await asyncio.to_thread(copy.finish, target)
        finally:
            copy.path.unlink(missing_ok=True)


class _Copy:
    """A file that grows piece by piece. It is opened for each: a thread may outlive its task."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.digest = hashlib.sha256()
        with telling("a copy of a blob"):
            os.close(create(path, 0o644))

    def take(self, piece: bytes) -> None:
        with self._opened() as descriptor:
            Disk().write_all(descriptor, piece, self.size)
        self.digest.update(piece)
        self.size += len(piece)

    def finish(self, target: Path) -> None:
        with self._opened() as descriptor:
            os.fsync(descriptor)
            self.path.rename(target)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        with telling("a copy of a blob"):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


def _linked(source: Path, file: VersionFile, target: Path) -> bool:
    """Make the target the only hard link of the source; whether that can be.

    A second one would make the first look younger: links share their time of change, and Triton
    loads a version anew whose files have changed since.
    """
    draft = draft_in(target.parent)
    try:
        about = source.stat(follow_symlinks=False)
        if about.st_nlink > 1:
            return False
        os.link(source, draft, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    try:
        if about.st_size != file.size:
            raise _damaged(file.sha256)
        draft.rename(target)
        return True
    finally:
        draft.unlink(missing_ok=True)


def _damaged(sha256: str) -> DigestMismatch:
    return DigestMismatch(
        f"blob {sha256[:12]} in the storage is damaged",
        why="its content does not match its SHA-256",
        try_this="remove it from the storage and push the model again",
    )


def blob_key(sha256: str) -> str:
    """Where a blob lies below the storage's root."""
    return f"blobs/sha256/{sha256[:2]}/{sha256}"


def _manifest(model: str, version: int) -> str:
    return f"manifests/{model}/{version}.json"
