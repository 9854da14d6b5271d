"""Packs in the storage: written once, and read as tables.

Where objects are in a bucket, the data of packs is read through a cache in the state folder.
"""

import asyncio
import contextlib
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from serve.control.artifacts.contents import scratch
from serve.control.artifacts.objects import Objects
from serve.core.errors import DigestMismatch
from serve.workbench.evaluation.dataset import PackOf
from serve.workbench.evaluation.pack_writer import MOST_CLASSES, Packed, PackWriter
from serve.workbench.evaluation.pictures import is_pictured
from serve.workbench.evaluation.rows import Table, read_table

_CACHED = "cache"
_OPEN = 4  # tables in memory
_CACHE = 8 << 30  # bytes of packs of a bucket that stay on this machine


class Packs:
    """The packs of all datasets. `folder` is ours, for what arrives and for the cache."""

    def __init__(self, objects: Objects, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        self._tables: OrderedDict[str, Table] = OrderedDict()
        self._used: set[Path] = set()  # what arrives now
        self._making = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Packs {len(self._tables)} open>"

    async def sweep(self) -> None:
        """Remove what a crash has left."""
        async with self._making:
            await asyncio.to_thread(_sweep, self._folder, frozenset(self._used))

    @asynccontextmanager
    async def scratch(self) -> AsyncIterator[Path]:
        """A new folder, gone in the end."""
        async with AsyncExitStack() as made_here:
            async with self._making:  # a sweep must not meet a folder that is not yet known
                await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
                made = await made_here.enter_async_context(scratch(self._folder))
                self._used.add(made)
            try:
                yield made
            finally:
                self._used.discard(made)

    async def keep(
        self, name: str, packed: Packed, writer: PackWriter, *, is_added: bool
    ) -> PackOf:
        """Put a pack into the storage; `is_added`: its rows were added one by one."""
        for path in (writer.data, writer.rows):
            size = await asyncio.to_thread(_size, path)
            await self._objects.move_in(_pack_key(name, packed.digest, path.name), path, size)
        labels = dict(packed.labels) if len(packed.labels) <= MOST_CLASSES else {}
        pack = PackOf(
            digest=packed.digest,
            rows=packed.rows,
            size=packed.size,
            labels=labels,
            distinct=len(packed.labels),
            inputs=packed.inputs,
            slices=packed.slices,
            vector=packed.vector,
            is_added=is_added,
            has_pictures=False,
        )
        table = await self.table(name, pack)
        return pack.with_pictures(await asyncio.to_thread(lambda: is_pictured(table.cells(0))))

    async def table(self, name: str, pack: PackOf) -> Table:
        """The rows of a pack; `NotFound`, `DigestMismatch`."""
        known = self._tables.get(pack.digest)
        if known is not None and await asyncio.to_thread(known.data.exists):
            self._tables.move_to_end(pack.digest)
            return known
        lines = await read_whole(self._objects, _pack_key(name, pack.digest, "rows"))
        data = await self._local(name, pack)
        try:
            table = await asyncio.to_thread(read_table, lines, data)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DigestMismatch(f"dataset '{name}' is damaged", why=repr(error)) from error
        self._tables[pack.digest] = table
        while len(self._tables) > _OPEN:
            self._tables.popitem(last=False)
        return table

    async def _local(self, name: str, pack: PackOf) -> Path:
        """The pack's data as a file on this machine."""
        key = _pack_key(name, pack.digest, "data")
        if path := self._objects.path(key):
            return path
        cache = self._folder / _CACHED
        target = cache / pack.digest
        if await asyncio.to_thread(target.exists):
            return target
        await asyncio.to_thread(cache.mkdir, parents=True, exist_ok=True)
        async with self.scratch() as folder:
            draft = folder / "data"
            async with contextlib.aclosing(self._objects.read(key)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(_append, draft, piece)
            await asyncio.to_thread(_settle, draft, target, pack.size)
        return target


def _sweep(folder: Path, used: Collection[Path]) -> None:
    for path in folder.iterdir() if folder.exists() else ():
        if path.name != _CACHED and path not in used:
            shutil.rmtree(path, ignore_errors=True)


def _size(path: Path) -> int:
    return path.stat().st_size


def _append(path: Path, piece: bytes) -> None:
    with path.open("ab") as file:
        file.write(piece)


def _settle(draft: Path, target: Path, size: int) -> None:
    """Give a cached file its name; those that were not used for longest go."""
    draft.touch()
    if draft.stat().st_size != size:
        raise DigestMismatch("a dataset in the storage is damaged", why="its size is wrong")
    draft.rename(target)
    files = sorted(target.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    room = _CACHE
    for path in files:
        room -= path.stat().st_size
        if room < 0 and path != target:
            path.unlink(missing_ok=True)


async def read_whole(objects: Objects, key: str) -> bytes:
    """The bytes of an object; `NotFound`."""
    data = bytearray()
    async with contextlib.aclosing(objects.read(key)) as pieces:
        async for piece in pieces:
            data += piece
    return bytes(data)


def _pack_key(name: str, digest: str, part: str) -> str:
    return f"datasets/{name}/packs/{digest}.{part}"
