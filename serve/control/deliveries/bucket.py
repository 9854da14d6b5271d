"""Delivery into a bucket that Triton reads itself (`s3://…`), the one that is the storage.

    <prefix>/repository/<physical>/...                  what Triton sees
    <prefix>/repository/.keep                           so that there is a repository from the start
    <prefix>/delivered/<physical>/<number>/<digest>     marks: empty, the digest is of what belongs
    <prefix>/delivered/<physical>/group/<digest>        there

A bucket cannot rename. But Triton looks into a model's folder only when it is told to load it, and
it is told only what `has` says. So a mark is written when everything it speaks of is there, and
removed before any of that is changed. What lies below these two prefixes belongs to Servegate.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from serve.control.artifacts.storage import blob_key
from serve.control.deliveries.delivery import Slot
from serve.control.deliveries.folder import DeliveryPiece, DeliveryReader, Manifests, place
from serve.control.deliveries.repository import group_mark, version_mark
from serve.control.deliveries.side_by_side import side_by_side
from serve.control.versions import PublishedVersion
from serve.core.errors import ServegateError, Unavailable
from serve.core.versions import CONFIG, VersionFile
from serve.processes.failpoints import reach
from serve.triton.repository_url import REPOSITORY

_DELIVERED, _GROUP, _KEEP = "delivered", "group", f"{REPOSITORY}/.keep"
_AT_A_TIME = 4  # copies
Marks = dict[tuple[str, str], set[str]]  # digests, by physical name and number or `group`


class BucketDelivery:
    """Delivers into the bucket at `url`, where the storage is too. `config`: see `Storage.of`."""

    def __init__(self, storage: Manifests, url: str, **config: str) -> None:
        from serve.control.artifacts.bucket_copies import CopyingBucket  # obstore, which few need

        self._bucket = CopyingBucket(url, **config)
        self._reading = DeliveryReader(storage)
        self._turn = asyncio.Lock()
        self._marked: Marks | None = None  # None: has to be read
        self._slots: frozenset[Slot] = frozenset()  # what this process has seen to be whole
        self._problems: Mapping[Slot, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"<BucketDelivery {self._bucket!r} {len(self._slots)} versions>"

    async def prepare(self) -> None:
        """Before Tritons start: they refuse a repository of which nothing is there.

        `Unavailable` when the bucket does not answer.
        """
        await self._bucket.put_new(_KEEP, b"")

    async def deliver(self, wanted: Collection[PublishedVersion], held: Collection[Slot]) -> None:
        """See `Delivery`."""
        async with self._turn:
            pieces, problems = await self._reading.pieces(wanted)
            known = {*held, *(place(version) for version in wanted)}
            self._slots &= known
            marks, self._marked = self._marked, None  # which stays so if this is cut short
            try:
                if marks is None:
                    await self.prepare()
                    marks = await self._read_marks()
                await self._clear(marks, known)
            except ServegateError as error:
                failed = {piece.slot: str(error) for piece in pieces}
            else:
                failed = await self._bring_all(pieces, marks)
                self._marked = None if failed else marks
            self._problems = MappingProxyType({**problems, **failed})

    def has(self, replica: str, version: PublishedVersion) -> bool:
        """See `Delivery`."""
        return place(version) in self._slots

    def problem(self, replica: str, version: PublishedVersion) -> str:
        """See `Delivery`."""
        return self._problems.get(place(version), "")

    async def _read_marks(self) -> Marks:
        marks: Marks = {}
        async for found in self._bucket.list(_DELIVERED):
            parts = found.key.split("/")
            if len(parts) == 4 and (parts[2] == _GROUP or parts[2].isdigit()):
                marks.setdefault((parts[1], parts[2]), set()).add(parts[3])
        return marks

    async def _clear(self, marks: Marks, known: set[Slot]) -> None:
        """Remove the versions that nobody needs, and the groups that have none left."""
        for name, number in [key for key in marks if key[1] != _GROUP]:
            if (name, int(number)) not in known:
                await self._unmark(marks, name, number)
                await self._remove(f"{REPOSITORY}/{name}/{number}")
        used = {name for name, _ in known} | {name for name, number in marks if number != _GROUP}
        for name, _ in [key for key in marks if key[0] not in used]:
            await self._unmark(marks, name, _GROUP)
            await self._remove(f"{REPOSITORY}/{name}")

    async def _bring_all(self, pieces: Iterable[DeliveryPiece], marks: Marks) -> dict[Slot, str]:
        failed = {}
        for piece in pieces:
            try:
                await self._bring(piece, marks)
            except ServegateError as error:
                failed[piece.slot] = str(error)
        return failed

    async def _bring(self, piece: DeliveryPiece, marks: Marks) -> None:
        manifest, layout = piece.manifest, piece.manifest.layout
        name, number = manifest.physical, str(manifest.version)
        if piece.slot in self._slots:
            return
        model, config = f"{REPOSITORY}/{name}", piece.config.encode()
        sizes = await self._sizes(model)
        mark = group_mark(manifest, piece.config)
        is_right = sizes.get(f"{model}/{CONFIG}") == len(config) and _fit(
            layout.model, model, sizes
        )
        if marks.get((name, _GROUP)) != {mark} or not is_right:
            await self._unmark(marks, name, _GROUP)
            await self._copy(layout.model, model)
            await self._bucket.put(f"{model}/{CONFIG}", config)
            await self._mark(marks, name, _GROUP, mark)
        mark = version_mark(manifest)
        if marks.get((name, number)) != {mark} or not _fit(layout.version, model, sizes):
            await self._unmark(marks, name, number)
            await self._remove(f"{model}/{number}")
            await self._copy(layout.version, model)
            reach("delivery.drafted")
            if not _fit(layout.version, model, await self._sizes(f"{model}/{number}")):
                raise Unavailable(f"the copies of '{name}' version {number} are incomplete")
            await self._mark(marks, name, number, mark)
            reach("delivery.renamed")
        self._slots |= {piece.slot}

    async def _copy(self, files: Iterable[VersionFile], model: str) -> None:
        async def one(file: VersionFile) -> None:
            await self._bucket.copy(blob_key(file.sha256), f"{model}/{file.path}", file.size)

        await side_by_side(one, files, at_a_time=_AT_A_TIME)

    async def _mark(self, marks: Marks, name: str, what: str, mark: str) -> None:
        await self._bucket.put(f"{_DELIVERED}/{name}/{what}/{mark}", b"")
        marks[name, what] = {mark}

    async def _unmark(self, marks: Marks, name: str, what: str) -> None:
        for mark in marks.pop((name, what), set()):
            await self._bucket.remove(f"{_DELIVERED}/{name}/{what}/{mark}")

    async def _remove(self, prefix: str) -> None:
        for key in await self._sizes(prefix):
            await self._bucket.remove(key)

    async def _sizes(self, prefix: str) -> dict[str, int]:
        return {found.key: found.size async for found in self._bucket.list(prefix)}


def _fit(files: Iterable[VersionFile], model: str, sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(f"{model}/{file.path}") == file.size for file in files)
