"""The client's half of an upload: only what is missing is sent, and every step can be repeated.

    POST  /api/uploads {model, files}        which blobs are missing, and where each goes on
    PATCH /api/uploads/{id}/blobs/{sha256}   the next piece of one, see `blob_upload.py`
    POST  /api/uploads/{id}/commit           a number for what is there

The offset that the gateway tells is right, whatever was sent. An upload that the gateway has
forgotten, or finds incomplete, is begun again: what has arrived stays there.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from serve.cli.blob_upload import Sending
from serve.cli.channel import Channel
from serve.cli.client import segment
from serve.cli.digests import Blob
from serve.cli.talk import CommandTalk, amount, stage
from serve.core.errors import Conflict, NotFound, first_of

PIECE = 64 << 20  # bytes of one PATCH
AT_ONCE = 4  # blobs
_ROUNDS = 4  # how often an upload is begun
_BEGIN_AGAIN = frozenset({"not_found", "unknown_upload", "conflict"})


class BlobToSend(NamedTuple):
    """A blob that the gateway lacks, and the byte at which it goes on."""

    blob: Blob
    offset: int


@dataclass(frozen=True, slots=True)
class Begun:
    """An upload as the gateway sees it. `existing` is the version with this content, if any."""

    id: str
    missing: tuple[BlobToSend, ...]
    existing: int | None

    @property
    def lacking(self) -> int:
        """Bytes that have to be sent."""
        return sum(blob.file.size - offset for blob, offset in self.missing)


@dataclass(frozen=True, slots=True)
class CommittedVersion:
    """What became of it: a new version, or the one that holds this content already."""

    version: int
    state: str
    created: bool


class Uploading:
    """One upload of some blobs as a version of a model. `sent` counts all bytes that left."""

    def __init__(
        self,
        channel: Channel,
        talk: CommandTalk,
        *,
        model: str,
        blobs: Sequence[Blob],
        piece: int = PIECE,
    ) -> None:
        self._channel = channel
        self._talk = talk
        self._model = model
        self._files = [blob.file.to_json() for blob in blobs]
        self._blobs = {blob.file.sha256: blob for blob in blobs}
        self._piece = piece
        self.sent = 0
        self.total = sum(blob.file.size for blob in self._blobs.values())  # each counted once

    def __repr__(self) -> str:
        return f"<Uploading {self._model}: {self.sent} of {self.total} bytes sent>"

    async def publish(self, ask: Mapping[str, Any]) -> CommittedVersion:
        """Send what is missing and commit it with `ask`; errors are those of the gateway."""
        for left in reversed(range(_ROUNDS)):
            begun = await self._begin()
            try:
                await self._bring(begun)
                return await self._commit(begun.id, ask)
            except (NotFound, Conflict) as error:
                if not left or error.code not in _BEGIN_AGAIN:
                    raise
                self._talk.tell("retry", f"starting the upload again: {error}", why=str(error))
        raise AssertionError("the last round returns or raises")

    async def _begin(self) -> Begun:
        body = {"model": self._model, "files": self._files}
        page = await self._channel.ask("POST", "/api/uploads", body)
        try:
            missing = tuple(
                BlobToSend(self._blobs[each["sha256"]], int(each["offset"]))
                for each in page["missing"]
            )
            begun = Begun(str(page["id"]), missing, page["existing"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._channel.stranger("its response to the upload is malformed") from error
        facts = {"id": begun.id, "missing": begun.lacking, "total": self.total}
        self._talk.tell("upload", self._plan(begun), **facts, existing=begun.existing)
        return begun

    def _plan(self, begun: Begun) -> str:
        """What is going to be sent, in words; empty when that is everything, or nothing."""
        if begun.lacking in (0, self.total):
            return ""
        there = amount(self.total - begun.lacking)
        return f"the gateway already has {there} of {amount(self.total)}"

    async def _commit(self, identity: str, ask: Mapping[str, Any]) -> CommittedVersion:
        path = f"/api/uploads/{segment(identity)}/commit"
        page = await self._channel.ask("POST", path, dict(ask), repeat=not ask.get("again"))
        try:
            return CommittedVersion(int(page["version"]), str(page["state"]), bool(page["created"]))
        except (KeyError, TypeError, ValueError) as error:
            raise self._channel.stranger("its response to the commit is malformed") from error

    async def _bring(self, begun: Begun) -> None:
        """Send all that is missing, several blobs at a time, the largest first."""
        if not begun.missing:
            return
        todo = iter(sorted(begun.missing, key=lambda each: -each.blob.file.size))
        with stage(self._talk, "uploading", self.total, self.total - begun.lacking):
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(AT_ONCE, len(begun.missing))):
                        group.create_task(self._work(begun.id, todo))
            except BaseExceptionGroup as errors:
                raise first_of(errors) from errors

    async def _work(self, identity: str, todo: Iterator[BlobToSend]) -> None:
        for blob, offset in todo:
            path = f"/api/uploads/{segment(identity)}/blobs/{blob.file.sha256}"
            sending = Sending(
                self._channel, self._talk, path=path, blob=blob, offset=offset, piece=self._piece
            )
            try:
                await sending.run()
            finally:
                self.sent += sending.sent
