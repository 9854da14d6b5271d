"""Datasets: labelled rows under a name, in revisions that never change, for everybody who may look.

    datasets/<name>/packs/<digest>.data    what rows were given, see `rows.py`
    datasets/<name>/packs/<digest>.rows
    datasets/<name>/revisions/<number>.json    which packs make it, and a summary; written last

A new upload under the same name is a new revision of other packs. A row that is added is a new
revision, too: rows that were added share the last pack, which is written anew while it is small.
The newest revisions stay, so that what was evaluated with them can be looked at. Where objects are
in a bucket, packs are read through a cache in the state folder.

A single row of what somebody has tried: a file's bytes, by its name, as cells.
"""

import asyncio
import contextlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path, PurePath
from types import MappingProxyType

import numpy as np

from serve.control.artifacts.objects import Objects
from serve.core.errors import Conflict, Invalid, NotFound
from serve.tensors import given_files as files
from serve.tensors.datatypes import Array, to_json
from serve.tensors.input_forms import GivenInput, InputForm
from serve.workbench.evaluation.dataset import Dataset, DatasetRows, PackOf, check_dataset_name
from serve.workbench.evaluation.formats.folder import IMAGES, picture
from serve.workbench.evaluation.pack_writer import PackWriter
from serve.workbench.evaluation.packs import Packs, read_whole
from serve.workbench.evaluation.pictures import png
from serve.workbench.evaluation.rows import LARGEST_CELL, Fresh, Table

# --- a single row of what somebody has tried ------------------------------------------------------


_FORMS: Mapping[str, InputForm] = MappingProxyType(
    {".npy": InputForm.NPY, ".csv": InputForm.CSV, ".txt": InputForm.TEXT, ".json": InputForm.JSON}
)


def cells_of(data: bytes, filename: str) -> dict[str, GivenInput]:
    """What a row was given; files of several arrays, and whole requests, by input.

    A name that says nothing is a picture's. `Invalid` for what cannot be read.
    """
    suffix = PurePath(filename).suffix.lower()
    if suffix == ".npz":
        return _each(files.npz_arrays(data, filename, LARGEST_CELL), filename)
    if suffix == ".json":
        document = files.json_document(data, filename)
        if isinstance(document, dict):
            return _each(files.request_inputs(document, filename), filename)
    if suffix in IMAGES or suffix not in _FORMS:
        return {"": picture(data, filename)}
    return {"": GivenInput(_FORMS[suffix], data, filename)}


def _each(arrays: Mapping[str, Array], filename: str) -> dict[str, GivenInput]:
    return {name: _given(array, filename) for name, array in arrays.items()}


def _given(array: Array, filename: str) -> GivenInput:
    if array.dtype.kind == "O":  # texts, which NPY would pickle
        return GivenInput(InputForm.JSON, json.dumps(to_json(array)).encode(), filename)
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return GivenInput(InputForm.NPY, file.getvalue(), filename)


# --- datasets -------------------------------------------------------------------------------------


KEPT = 20  # revisions of a dataset
MOST_DATASETS = 1000
_FOLDER = "datasets"
_REVISION = re.compile(rf"{_FOLDER}/([^/]+)/revisions/([0-9]{{6}})\.json\Z")
_PACK = re.compile(rf"{_FOLDER}/[^/]+/packs/([0-9a-f]{{64}})\.(?:data|rows)\Z")
_SMALL = 4 << 20  # bytes up to which a pack of added rows is written anew


class Datasets:
    """The datasets in one storage. `scratch` is a folder of ours; `wall` seconds of the epoch."""

    def __init__(self, *, objects: Objects, scratch: Path, wall: Callable[[], float]) -> None:
        self._objects = objects
        self._scratch = scratch
        self._wall = wall
        self._packs = Packs(objects, scratch)
        self._writing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Datasets in {self._objects!r}>"

    def scratch(self) -> AbstractAsyncContextManager[Path]:
        """A new folder, for what arrives and for what is made of it."""
        return self._packs.scratch()

    async def sweep(self) -> None:
        """Remove what a crash has left of uploads."""
        await self._packs.sweep()

    # --- questions -------------------------------------------------------------------------------

    async def all(self) -> tuple[Dataset, ...]:
        """The newest revision of each, by name."""
        newest = {name: numbers[-1] for name, numbers in (await self._numbers(_FOLDER)).items()}
        found = []
        for name, number in sorted(newest.items()):
            with contextlib.suppress(NotFound):  # removed a moment ago
                found.append(await self._read(name, number))
        return tuple(found)

    async def get(self, name: str, revision: int | None = None) -> Dataset:
        """One revision, the newest if none is named; `NotFound`."""
        check_dataset_name(name)
        if revision is None:
            numbers = (await self._numbers(f"{_FOLDER}/{name}")).get(name, [])
            if not numbers:
                raise _unknown(name)
            revision = numbers[-1]
        return await self._read(name, revision)

    async def view(self, name: str, revision: int | None = None) -> DatasetRows:
        """The rows of one revision, ready to be read; `NotFound`, `DigestMismatch`."""
        dataset = await self.get(name, revision)
        tables = [await self._packs.table(dataset.name, pack) for pack in dataset.packs]
        return DatasetRows(dataset, tuple(tables))

    async def picture(self, name: str, row: int, revision: int | None = None) -> bytes:
        """A row as a PNG file; `NotFound` where there is no such row, or it is no picture."""
        view = await self.view(name, revision)
        data = await asyncio.to_thread(lambda: png(view.cells(row)))
        if data is None:
            raise NotFound(f"row {row} of dataset '{name}' is not a picture")
        return data

    # --- changes ---------------------------------------------------------------------------------

    async def add(self, name: str, rows: Iterable[Fresh], *, source: str, author: str) -> Dataset:
        """A new revision of these rows, read in a thread; the same rows again are no change.

        `Invalid` names the first row that cannot be kept; nothing is kept then.
        """
        check_dataset_name(name)
        async with self._packs.scratch() as folder:
            writer = PackWriter(folder)
            packed = await asyncio.to_thread(writer.write, rows)
            async with self._writing:
                await self._require_room(name)
                pack = await self._packs.keep(name, packed, writer, is_added=False)
                return await self._publish(name, (pack,), source, author)

    async def add_row(
        self,
        name: str,
        given: Mapping[str, GivenInput] | bytes,
        filename: str,
        label: str,
        author: str,
    ) -> Dataset:
        """One more row at the end of a dataset, or the first one of a new dataset.

        `given` is by input name, or a file of this name. `Invalid` for what cannot be read, and for
        random values, which would not be the same for every version.
        """
        check_dataset_name(name)
        if isinstance(given, bytes):
            cells = await asyncio.to_thread(cells_of, given, filename)
        else:
            cells = dict(given)
        if any(one.form is InputForm.RANDOM for one in cells.values()):
            raise Invalid(
                "random values cannot become a row of a dataset",
                why="they would differ between versions",
                try_this="use a file, or enter the values",
            )
        async with self._writing:
            before = await self._present(name)
            if not before:
                await self._require_room(name)
            first: list[Fresh] = []
            if before and before[-1].is_added and before[-1].size < _SMALL:
                last = await self._packs.table(name, before[-1])
                first = await asyncio.to_thread(_again, last)
                before = before[:-1]
            slices = dict.fromkeys(self._slices(before), "")
            rows = [*first, Fresh(label, cells, name=filename, slices=slices)]
            async with self._packs.scratch() as folder:
                writer = PackWriter(folder)
                packed = await asyncio.to_thread(writer.write, rows)
                pack = await self._packs.keep(name, packed, writer, is_added=True)
            return await self._publish(name, (*before, pack), "added rows", author)

    async def remove(self, name: str) -> None:
        """Take all revisions away; `NotFound`."""
        await self.get(name)
        async with self._writing:
            keys = [found.key async for found in self._objects.list(f"{_FOLDER}/{name}")]
            for key in sorted(keys, reverse=True):  # revisions before packs
                await self._objects.remove(key)

    # --- within ----------------------------------------------------------------------------------

    async def _require_room(self, name: str) -> None:
        numbers = await self._numbers(_FOLDER)
        if name not in numbers and len(numbers) >= MOST_DATASETS:
            raise Conflict(
                "no more datasets can be stored",
                why=f"the limit is {MOST_DATASETS}",
                try_this="servegate eval dataset rm NAME",
            )

    async def _numbers(self, prefix: str) -> dict[str, list[int]]:
        """The numbers of the revisions of each dataset, ascending."""
        found: dict[str, list[int]] = {}
        async for one in self._objects.list(prefix):
            if match := _REVISION.match(one.key):
                found.setdefault(match[1], []).append(int(match[2]))
        return {name: sorted(numbers) for name, numbers in found.items()}

    async def _present(self, name: str) -> tuple[PackOf, ...]:
        try:
            return (await self.get(name)).packs
        except NotFound:
            return ()

    def _slices(self, packs: Iterable[PackOf]) -> tuple[str, ...]:
        return next((pack.slices for pack in packs), ())

    async def _read(self, name: str, number: int) -> Dataset:
        try:
            data = await read_whole(self._objects, _revision_key(name, number))
        except NotFound as error:
            raise _unknown(name, number) from error
        return Dataset.from_json(json.loads(data))

    async def _publish(
        self, name: str, packs: tuple[PackOf, ...], source: str, author: str
    ) -> Dataset:
        numbers = (await self._numbers(f"{_FOLDER}/{name}")).get(name, [])
        if numbers:
            present = await self._read(name, numbers[-1])
            if [pack.digest for pack in present.packs] == [pack.digest for pack in packs]:
                return present
        number = numbers[-1] + 1 if numbers else 1
        made = Dataset(name, number, packs, source, author, self._wall())
        data = json.dumps(made.to_json()).encode()
        if not await self._objects.put_new(_revision_key(name, number), data):
            raise Conflict(
                f"another request has just changed dataset '{name}'", try_this="repeat the request"
            )
        await self._forget_old(name, [*numbers, number])
        return made

    async def _forget_old(self, name: str, numbers: list[int]) -> None:
        """Remove old revisions, and packs that none of the others needs."""
        if len(numbers) <= KEPT:
            return
        kept = [await self._read(name, number) for number in numbers[-KEPT:]]
        needed = {pack.digest for one in kept for pack in one.packs}
        for number in numbers[:-KEPT]:
            await self._objects.remove(_revision_key(name, number))
        keys = [found.key async for found in self._objects.list(f"{_FOLDER}/{name}/packs")]
        for key in keys:
            match = _PACK.match(key)
            if match and match[1] not in needed:
                await self._objects.remove(key)


def _again(table: Table) -> list[Fresh]:
    """The rows of a small pack, to be written once more."""
    return [
        Fresh(row.label, table.cells(index), row.name, row.slices)
        for index, row in enumerate(table.rows)
    ]


def _revision_key(name: str, number: int) -> str:
    return f"{_FOLDER}/{name}/revisions/{number:06}.json"


def _unknown(name: str, revision: int | None = None) -> NotFound:
    what = f"there is no dataset '{name}'"
    if revision is not None:
        what = f"there is no revision {revision} of dataset '{name}'"
    return NotFound(what, try_this="servegate eval dataset ls")
