"""The contents of a version's small files: texts, labels, documents, golden cases."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from serve.control.artifacts.storage import ArtifactStorage
from serve.core.errors import Invalid
from serve.core.versions import CONVERSION, FLAVOURS, PLANS, Layout, VersionFile, unverified_in
from serve.tensors.contracts import MOST_BYTES, Contract

SMALL = 1 << 20  # bytes; configurations, labels and documents beyond this are not what they say


class Contents:
    """What the files of one version say; `Invalid` for every file that does not say it well."""

    def __init__(self, storage: ArtifactStorage) -> None:
        self._storage = storage

    def __repr__(self) -> str:
        return f"<Contents {self._storage}>"

    async def text(self, file: VersionFile) -> str:
        """A small file of UTF-8 text."""
        if file.size > SMALL:
            raise Invalid(f"'{file.path}' is larger than {SMALL} bytes")
        try:
            return (await self._storage.read(file.sha256, most=SMALL)).decode()
        except UnicodeDecodeError as error:
            raise Invalid(f"'{file.path}' is not UTF-8 text") from error

    async def labels(
        self, layout: Layout, files: Mapping[str, str]
    ) -> Mapping[str, tuple[str, ...]]:
        """The lines of each output's label file, by the output's name."""
        beside = {file.path: file for file in layout.model}
        found = {}
        for output, name in files.items():
            if name not in beside:
                raise Invalid(f"the label file '{name}' of output '{output}' is missing")
            found[output] = tuple((await self.text(beside[name])).splitlines())
        return found

    async def flavours(self, layout: Layout) -> str:
        """The text of flavours.json; empty when it is not there."""
        file = next((file for file in layout.documents if file.path == FLAVOURS), None)
        return "" if file is None else await self.text(file)

    async def plans(self, layout: Layout) -> Mapping[str, Any]:
        """What plans.json says of each plan, by its flavour; empty when it is not there."""
        found = (await self.document(layout, PLANS)).get("plans")
        return found if isinstance(found, dict) else {}

    async def document(self, layout: Layout, name: str) -> Mapping[str, Any]:
        """A JSON object; an empty one when it is not there."""
        file = next((file for file in layout.documents if file.path == name), None)
        if file is None:
            return {}
        text = await self.text(file)
        try:
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # half a surrogate
        except (ValueError, RecursionError) as error:
            raise Invalid(f"'{name}' is not JSON", why=str(error)) from error
        if not isinstance(value, dict):
            raise Invalid(f"'{name}' must contain a JSON object")
        return value

    async def unverified(self, layout: Layout) -> str:
        """Why the report of its conversion says that nothing verifies it; empty for all others."""
        try:
            return unverified_in(await self.document(layout, CONVERSION))
        except Invalid:  # it is for people; a version does not fail for it
            return ""

    async def contract(self, layout: Layout) -> Contract | None:
        """The golden cases; None for a version without any."""
        if not layout.contract:
            return None
        if sum(file.size for file in layout.contract) > MOST_BYTES:
            raise Invalid(f"the contract is larger than {MOST_BYTES} bytes")
        files = {
            file.path: await self._storage.read(file.sha256, most=MOST_BYTES)
            for file in layout.contract
        }
        return await asyncio.to_thread(Contract.read, files)  # which may be 64 MiB

    async def bring(self, files: Iterable[VersionFile], folder: Path) -> None:
        """Put files below a folder, each at its own path."""
        for file in files:
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            await self._storage.fetch(file, target)


@asynccontextmanager
async def scratch(folder: Path) -> AsyncIterator[Path]:
    """A new folder in this one, for as long as it is needed."""
    made = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=folder))
    try:
        yield made
    finally:
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
