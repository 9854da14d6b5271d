"""Bringing the files of a version here: each verified, none half written, none overwritten.

A file grows under a temporary name and gets its own once its digest is right. A pull that was
stopped goes on with the files that are not there yet.
"""

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from serve.cli.channel import Away, Channel
from serve.cli.client import AdminClient, segment
from serve.cli.pieces import unreadable
from serve.cli.talk import CommandTalk, stage
from serve.core.errors import Conflict, DigestMismatch
from serve.core.versions import VersionFile, check_files

_AT_ONCE = 4


class Pulling:
    """The files of one version on their way into a folder."""

    def __init__(self, admin: AdminClient, talk: CommandTalk, *, path: str, folder: Path) -> None:
        self._admin = admin
        self._talk = talk
        self._path = path
        self._folder = folder

    def __repr__(self) -> str:
        return f"<Pulling {self._path} into {self._folder}>"

    def lacking(self, files: Sequence[VersionFile]) -> tuple[VersionFile, ...]:
        """The files that are not there yet; `Conflict` for one that is there and differs.

        `Invalid` for files that the gateway should not have: their paths could lead anywhere.
        """
        return tuple(file for file in check_files(files) if not self._is_there(file))

    def _is_there(self, file: VersionFile) -> bool:
        target = self._folder / file.path
        try:
            if not target.exists():
                return False
            with target.open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(target, error) from error
        if found != file.sha256:
            raise Conflict(
                f"{target} exists and has other content", try_this="--out with another folder"
            )
        return True

    async def run(self, files: Sequence[VersionFile]) -> None:
        """Bring these files, several at a time; `DigestMismatch` when one is not what it was."""
        todo = iter(sorted(files, key=lambda file: -file.size))
        async with self._admin.asynchronous() as client:
            channel = Channel(client, self._talk)
            with stage(self._talk, "downloading", sum(file.size for file in files)):
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(_AT_ONCE, len(files))):
                        group.create_task(self._work(channel, todo))

    async def _work(self, channel: Channel, todo: Iterator[VersionFile]) -> None:
        for file in todo:
            try:
                async for attempt in channel.patience.tries():
                    with attempt:
                        await self._bring(channel, file)
            except Away as away:
                raise away.error from away

    async def _bring(self, channel: Channel, file: VersionFile) -> None:
        parts = "/".join(segment(part) for part in file.path.split("/"))
        with _draft(self._folder / file.path) as opened:
            found = await channel.download(f"{self._path}/files/{parts}", opened)
            if found != file.sha256:
                raise DigestMismatch(
                    f"'{file.path}' does not match the published file",
                    why=f"its SHA-256 is {found[:12]}…, not {file.sha256[:12]}…",
                )


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[BinaryIO]:
    """A file beside the target that takes its place at the end, unless something is raised."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".pull-", dir=target.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            yield opened
        draft.chmod(0o644)
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)
