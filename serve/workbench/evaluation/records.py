"""What is kept of evaluations: the record of each, and its results in chunks, as they come.

evaluations/<id>/line.json        the record
evaluations/<id>/rows-000001      results, one line of JSON each; a later one of a row counts
evaluations/<id>/report.json      the report, once it has ended
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from serve.control.artifacts.objects import Objects
from serve.control.shelves import LINE, StorageShelf
from serve.core.errors import NotFound
from serve.workbench.evaluation.evaluation import Evaluation
from serve.workbench.evaluation.results import RowResult, from_lines, to_lines

KEPT = 200  # evaluations
_REPORT = "report.json"


class Keeping:
    """The evaluations in one storage."""

    def __init__(self, objects: Objects) -> None:
        self._shelf = StorageShelf(
            objects, "evaluations", kept=2 * KEPT
        )  # who keeps them removes the old

    def __repr__(self) -> str:
        return f"<Keeping {self._shelf!r}>"

    async def begin(self, evaluation: Evaluation) -> None:
        """Keep a new one."""
        await self._shelf.show(evaluation.id, evaluation.to_json())

    async def write(self, evaluation: Evaluation) -> None:
        """Replace the record."""
        data = json.dumps(evaluation.to_json()).encode()
        await self._shelf.put(evaluation.id, LINE, data)

    async def all(self) -> list[Evaluation]:
        """Every record that can be read, in the order in which they were asked for."""
        found = []
        for name in await self._shelf.names():
            try:
                found.append(Evaluation.from_json(await self._shelf.line(name)))
            except (NotFound, ValueError, KeyError, TypeError):
                continue  # removed a moment ago, or of another time
        return sorted(found, key=lambda one: (one.created, one.id))

    async def add(self, identity: str, number: int, results: Sequence[RowResult]) -> None:
        """Keep a chunk; numbers count from 1 without a gap."""
        data = await asyncio.to_thread(to_lines, results)
        await self._shelf.put(identity, _chunk(number), data)

    async def results(self, identity: str) -> tuple[dict[int, RowResult], int]:
        """The results by row, and how many chunks there are."""
        found: dict[int, RowResult] = {}
        number = 0
        while True:
            try:
                data = await self._shelf.read(identity, _chunk(number + 1))
            except NotFound:
                return found, number
            number += 1
            found.update({one.row: one for one in await asyncio.to_thread(from_lines, data)})

    async def report(self, identity: str) -> dict[str, Any] | None:
        """The report of one that has ended."""
        try:
            page: dict[str, Any] = json.loads(await self._shelf.read(identity, _REPORT))
        except NotFound:
            return None
        return page

    async def write_report(self, identity: str, page: Mapping[str, Any]) -> None:
        """Replace the report."""
        await self._shelf.put(identity, _REPORT, json.dumps(page).encode())

    async def remove(self, identity: str) -> None:
        """Take one away."""
        await self._shelf.remove(identity)


def _chunk(number: int) -> str:
    return f"rows-{number:06}"
