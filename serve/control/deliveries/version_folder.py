"""Materialising: a published version as a folder of a model repository, whole or not there at all.

Everything is built in a draft and put into its place by `control/deliveries/repository.py`.
"""

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from serve.control.deliveries.repository import (
    group_is_whole,
    new_draft,
    place_group,
    place_version,
    require_ours,
    room,
    settle,
    slot_of,
    write_new,
)
from serve.control.deliveries.side_by_side import side_by_side
from serve.core.errors import DigestMismatch, Invalid
from serve.core.names import check_model_name
from serve.core.versions import CONFIG, Manifest, VersionFile
from serve.processes.failpoints import reach

P = ParamSpec("P")
T = TypeVar("T")
_AT_A_TIME = 4  # files of one version that are fetched side by side
_PIECE = 1 << 23  # bytes that are hashed between two looks at the clock


class BlobSource(Protocol):
    """Where blobs come from."""

    async def fetch(self, file: VersionFile, target: Path) -> None:
        """Put the blob at a path that is free, whole and on the disk; the digest of what came
        over a wire is right. May be a hard link."""


def check_config(manifest: Manifest, config: str) -> None:
    """`Invalid` for a configuration that is not the one which was published."""
    published = manifest.layout.config
    data = config.encode()
    if published is not None and hashlib.sha256(data).hexdigest() != published.sha256:
        name = f"version {manifest.version} of model '{manifest.model}'"
        raise Invalid(f"the configuration of {name} differs from the published one")


async def materialise(
    source: BlobSource, manifest: Manifest, config: str, repository: Path
) -> None:
    """Build the version's folder, and the group's files where they are missing or wrong.

    A folder of ours that is not right is built anew beside the old one. `DigestMismatch` when a
    blob is not what its name says, `Conflict` when the place is taken by what is not ours.
    """
    check_config(manifest, config)
    check_model_name(manifest.physical)
    require_ours(repository, slot_of(manifest))
    draft = new_draft(repository)
    layout = manifest.layout
    try:
        if not group_is_whole(manifest, config, repository):
            await _collect(source, layout.model, draft)
            write_new(room(draft / CONFIG), config.encode())
            await to_the_end(place_group, manifest, config, draft, repository)
        await _collect(source, layout.version, draft)
        folder = draft / str(manifest.version)
        await asyncio.to_thread(settle, folder)
        reach("delivery.drafted")
        await to_the_end(place_version, manifest, folder, repository)
        reach("delivery.renamed")
    finally:
        shutil.rmtree(draft, ignore_errors=True)


async def to_the_end(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run this in a thread, and see it end there even when cancelled: nobody else comes between."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


async def require_digest(path: Path, file: VersionFile) -> None:
    """`DigestMismatch` when the bytes at this path are not the file's."""
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, _PIECE):
            await asyncio.to_thread(digest.update, piece)
    if digest.hexdigest() != file.sha256:
        raise DigestMismatch(
            f"the blob {file.sha256[:12]} of '{file.path}' is damaged",
            why="its content does not match its SHA-256",
            try_this="push the version again",
        )


async def _collect(source: BlobSource, files: Iterable[VersionFile], draft: Path) -> None:
    """Fetch files into a draft. A hard link is read through once: no wire has checked it."""

    async def one(file: VersionFile) -> None:
        target = room(draft / file.path)
        await source.fetch(file, target)
        status = target.stat()
        if status.st_nlink > 1 or status.st_size != file.size:
            await require_digest(target, file)
        if status.st_mode & 0o777 != 0o444:
            with contextlib.suppress(PermissionError):  # a blob of another user stays as it is
                target.chmod(0o444)

    await side_by_side(one, files, at_a_time=_AT_A_TIME)
