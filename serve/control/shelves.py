"""Shelves: things of one kind under names, each of several parts, kept where versions are kept.

    <folder>/<name>/<part>         bytes
    <folder>/<name>/line.json      what a list shows of it, written last and removed first

A thing is there when its line is. Only the newest stay. Who adds a thing lists the others once in
the life of the process: listing a bucket takes seconds.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

from serve.control.artifacts.objects import Objects

LINE = "line.json"


class StorageShelf:
    """One folder of a storage. `kept` is how many things stay."""

    def __init__(self, objects: Objects, folder: str, *, kept: int) -> None:
        self._objects = objects
        self._folder = folder
        self._kept = kept
        self._order: list[str] = []  # the oldest first, as far as this process has looked or shown
        self._has_looked = False
        self._line = re.compile(rf"{re.escape(folder)}/([^/]+)/{re.escape(LINE)}\Z")

    def __repr__(self) -> str:
        return f"<StorageShelf {self._folder} in {self._objects!r}>"

    async def put(self, name: str, part: str, data: bytes) -> None:
        """Write a part, or replace it."""
        await self._objects.put(self._key(name, part), data)

    async def put_new(self, name: str, part: str, data: bytes) -> bool:
        """Write a part unless it is there; whether it was written."""
        return await self._objects.put_new(self._key(name, part), data)

    async def show(self, name: str, line: Mapping[str, Any]) -> None:
        """Write the line, so that the thing is there; the oldest ones go."""
        await self.put(name, LINE, json.dumps(line).encode())
        found = [name] if self._has_looked else reversed(await self.names())
        self._order += [one for one in found if one not in self._order]
        self._has_looked = True
        while len(self._order) > self._kept:
            await self.remove(self._order[0])

    async def names(self) -> list[str]:
        """What is there, the newest first."""
        found = []
        async for one in self._objects.list(self._folder):
            if match := self._line.match(one.key):
                found.append((one.at, match[1]))
        return [name for _, name in sorted(found, reverse=True)]

    async def line(self, name: str) -> Any:
        """What `show` was given; `NotFound`."""
        return json.loads(await self.read(name, LINE))

    async def read(self, name: str, part: str) -> bytes:
        """The bytes of a part; `NotFound`."""
        data = bytearray()
        async with contextlib.aclosing(self._objects.read(self._key(name, part))) as pieces:
            async for piece in pieces:
                data += piece
        return bytes(data)

    async def remove(self, name: str) -> None:
        """Take a thing away with all its parts; one that is not there is no error."""
        if name in self._order:
            self._order.remove(name)
        await self._objects.remove(self._key(name, LINE))
        keys = [one.key async for one in self._objects.list(f"{self._folder}/{name}")]
        for key in keys:
            await self._objects.remove(key)

    def _key(self, name: str, part: str) -> str:
        return f"{self._folder}/{name}/{part}"
