"""Reports of load tests, kept where published versions are kept, for everybody who may look.

    load-reports/<name>/report.json     the whole report, as it was sent
    load-reports/<name>/line.json       what a list shows of it, written last

A report is there when its line is. The newest `KEPT` stay.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from serve.control.artifacts.objects import Objects
from serve.control.shelves import StorageShelf
from serve.core.errors import Conflict, NotFound
from serve.core.names import check_report_name, is_report_name

KEPT = 200
_FOLDER, _REPORT = "load-reports", "report.json"


@dataclass(frozen=True, slots=True)
class LoadReportLine:
    """One report in a list. `at`: Unix time of its upload; `begun`: start of the test, according
    to the report. `passed` is null if no objective was set.
    """

    name: str
    title: str
    scenario: str
    model: str
    begun: str
    passed: bool | None
    finding: str
    author: str
    at: float
    size: int


class LoadReports:
    """The reports in one storage."""

    def __init__(self, objects: Objects, *, wall: Callable[[], float]) -> None:
        self._shelf = StorageShelf(objects, _FOLDER, kept=KEPT)
        self._wall = wall

    def __repr__(self) -> str:
        return f"<LoadReports on {self._shelf!r}>"

    async def add(self, page: Mapping[str, Any], data: bytes, author: str) -> LoadReportLine:
        """Keep a report: its fields, and the bytes they were read from.

        `Invalid` for a name that cannot be one, `Conflict` when it is taken by another report.
        """
        name = str(page["name"])
        check_report_name(name)
        findings = page["findings"]
        line = LoadReportLine(
            name=name,
            title=str(page["title"]),
            scenario=str(page["scenario"]),
            model=str(page["model"]),
            begun=str(page["begun"]),
            passed=page["passed"],
            finding=str(findings[0]) if findings else "",
            author=author,
            at=self._wall(),
            size=len(data),
        )
        if not await self._shelf.put_new(name, _REPORT, data):
            if await self._shelf.read(name, _REPORT) != data:
                raise Conflict(f"another load report is named '{name}'", try_this="--name OTHER")
            with contextlib.suppress(NotFound):
                return await self._line(name)
        await self._shelf.show(name, asdict(line))
        return line

    async def all(self) -> tuple[LoadReportLine, ...]:
        """What is there, the newest first."""
        lines = []
        for name in await self._shelf.names():
            with contextlib.suppress(NotFound):  # removed a moment ago
                lines.append(await self._line(name))
        return tuple(sorted(lines, key=lambda line: line.at, reverse=True))

    async def read(self, name: str) -> bytes:
        """The report as it was sent; `NotFound`."""
        if not is_report_name(name):
            raise _unknown(name)
        try:
            return await self._shelf.read(name, _REPORT)
        except NotFound as error:
            raise _unknown(name) from error

    async def remove(self, name: str) -> None:
        """Take a report away; `NotFound`."""
        await self.read(name)
        await self._shelf.remove(name)

    async def _line(self, name: str) -> LoadReportLine:
        return LoadReportLine(**await self._shelf.line(name))


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no load report '{name}'", try_this="GET /api/load/reports")
