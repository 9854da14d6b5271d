"""Sending one blob: piece after piece, from wherever the gateway says that it goes on.

| what comes back                  | what follows                                                |
|----------------------------------|-------------------------------------------------------------|
| 204 with Upload-Offset           | the next piece from there; at the end the blob is done      |
| 409 with another Upload-Offset   | the next piece from there: another client sends it too      |
| 409 with the same one            | again after a pause: another client is just sending         |
| no answer                        | HEAD; when something has arrived, the next piece from there |
|                                  | at once, else after a pause                                 |
| 422 digest_mismatch              | from the first byte, unless the file has changed            |
| any other answer                 | an error                                                    |
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from serve.cli.channel import Away, Channel
from serve.cli.client import error_of
from serve.cli.digests import CHUNK, Blob, changed
from serve.cli.talk import CommandTalk
from serve.core.errors import Conflict

if TYPE_CHECKING:
    import httpx2

_FEELER = 1 << 18  # bytes of a piece after one that came at the wrong place, and was in vain
_MOST_BACK = 5  # how often what has arrived may be lost


class Sending:
    """One blob on its way. `sent` counts every byte that left, also those sent twice."""

    def __init__(
        self, channel: Channel, talk: CommandTalk, *, path: str, blob: Blob, offset: int, piece: int
    ) -> None:
        self._channel = channel
        self._talk = talk
        self._path = path
        self._blob = blob
        self._offset = offset
        self._piece = self._size = piece
        self._is_unsure = False  # whether the gateway may have more, or less, than we know
        self._shown = offset  # how far the progress that is shown has come
        self._lost = self._spoilt = 0
        self.sent = 0

    def __repr__(self) -> str:
        return f"<Sending {self._blob.file.path}: {self._offset} of {self._blob.file.size}>"

    async def run(self) -> None:
        """Return when the gateway has the whole blob.

        `Conflict` when the file changes meanwhile, or the gateway loses what arrives again and
        again; else the gateway's own errors.
        """
        is_whole = False
        while not is_whole:
            before = self._offset
            is_whole = await self._next_piece()
            self._show(self._offset)
            self._lost += self._offset < before
            if self._lost > _MOST_BACK:
                raise Conflict(
                    f"the upload of '{self._blob.file.path}' makes no progress",
                    why="the gateway keeps losing the data that it received",
                    try_this="push again when no other client uploads the same file",
                )

    async def _next_piece(self) -> bool:
        """Move the offset on; whether the blob is whole."""
        try:
            async for attempt in self._channel.patience.tries():
                with attempt:
                    return await self._patch()
        except Away as away:
            raise away.error from away
        raise AssertionError("the last try returns or raises")

    async def _patch(self) -> bool:
        if self._is_unsure:
            await self._ask_offset()
        blob, offset = self._blob, self._offset
        size = min(self._size, blob.file.size - offset)
        headers = {
            "upload-offset": str(offset),
            "content-type": "application/offset+octet-stream",
            "content-length": str(size),
        }
        try:
            answer = await self._channel.once(
                "PATCH", self._path, content=self._read(offset, size), headers=headers
            )
        except Away as away:
            self._talk.tell("retry", why=str(away), path=blob.file.path)
            self._is_unsure = True
            await self._ask_offset()
            if self._offset <= offset:
                raise
            return False  # an empty piece asks whether it is whole
        if answer.status_code == 422:
            await self._start_again(answer)
            return False
        self._offset = self._told(answer)
        is_taken = answer.status_code != 409
        self._size = min(self._size * 4, self._piece) if is_taken else min(_FEELER, self._piece)
        if not is_taken and self._offset == offset != blob.file.size:
            raise Away(error_of(answer), was_sent=False)
        return self._offset == blob.file.size

    async def _ask_offset(self) -> None:
        self._offset = self._told(await self._channel.once("HEAD", self._path))
        self._is_unsure = False
        self._show(self._offset)

    def _told(self, answer: "httpx2.Response") -> int:
        """The offset in an answer; what is no answer to a piece is raised."""
        if not answer.is_success and answer.status_code != 409:
            raise error_of(answer)
        offset = answer.headers.get("upload-offset", "")
        if not offset.isdecimal() or int(offset) > self._blob.file.size:
            if answer.status_code == 409:
                raise error_of(answer)
            raise self._channel.stranger("its response has no valid Upload-Offset")
        return int(offset)

    async def _start_again(self, answer: "httpx2.Response") -> None:
        """The bytes were spoilt on the way, or by another client; other errors are raised."""
        error = error_of(answer)
        if error.code != "digest_mismatch":
            raise error
        if not isinstance(self._blob.origin, bytes):
            (await asyncio.to_thread(self._blob.open)).close()  # or it has changed
        self._spoilt += 1
        if self._spoilt > 1:
            raise error
        self._offset = 0
        self._talk.tell("retry", f"sending '{self._blob.file.path}' again: {error}", why=str(error))

    async def _read(self, offset: int, size: int) -> AsyncIterator[bytes]:
        """These bytes of the blob, counted as they are handed over."""
        if isinstance(self._blob.origin, bytes):
            if size:
                self._count(size)
                yield self._blob.origin[offset : offset + size]
            return
        file = await asyncio.to_thread(self._blob.open)
        try:
            file.seek(offset)
            while size > 0:
                data = await asyncio.to_thread(file.read, min(CHUNK, size))
                if not data:
                    raise changed(self._blob.file.path)
                size -= len(data)
                self._count(len(data))
                yield data
        finally:
            file.close()

    def _count(self, size: int) -> None:
        self.sent += size
        self._shown += size
        self._talk.advance(size)

    def _show(self, offset: int) -> None:
        """Correct what is shown: less may have arrived than has left."""
        if offset != self._shown:
            self._talk.advance(offset - self._shown)
            self._shown = offset
