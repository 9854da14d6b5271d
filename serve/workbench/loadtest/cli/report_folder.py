"""The report of a load test: put together, kept in its folder, and shared with the gateway."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import serve
from serve.core.errors import Invalid
from serve.core.names import check_report_name

if TYPE_CHECKING:
    from serve.workbench.loadtest.reports.report import LoadReport, LoadRun, Sweep


@dataclass(frozen=True, slots=True)
class ReportShelf:
    """Where a report goes, and what it says of itself. `asked` is NAME, NAME@V or NAME:label."""

    folder: Path
    name: str
    asked: str
    scenario: str
    title: str
    command: str
    begun: datetime

    @classmethod
    def begin(
        cls, folder: Path, name: str, *, asked: str, scenario: str, title: str, command: str
    ) -> "ReportShelf":
        """A place for a report that begins now; `Invalid` where none can be kept in the end."""
        from serve.workbench.loadtest.reports.folder import name_of

        if name:
            check_report_name(name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_writable = os.access(folder, os.W_OK | os.X_OK)
        except OSError:
            is_writable = False
        if not is_writable:
            raise Invalid(f"cannot write a report to {folder}", try_this="--out DIR")
        begun = datetime.now(UTC)
        return cls(
            folder, name or name_of(begun, asked, scenario), asked, scenario, title, command, begun
        )

    def report(
        self,
        runs: "Sequence[LoadRun]",
        findings: Sequence[str],
        passed: bool | None,
        sweep: "Sweep | None" = None,
    ) -> "LoadReport":
        """All of it."""
        from serve.workbench.loadtest.cli.view import with_interruption
        from serve.workbench.loadtest.reports.report import LoadReport

        return LoadReport(
            name=self.name,
            title=self.title,
            scenario=self.scenario,
            model=self.asked,
            begun=self.begun.isoformat(timespec="seconds"),
            command=self.command,
            runs=tuple(runs),
            findings=tuple(with_interruption(runs, findings)),
            passed=passed,
            sweep=sweep,
            machine=machine(),
            versions=versions(),
        )

    def keep(self, report: "LoadReport") -> "tuple[LoadReport, Path]":
        """Write it: as it is kept, perhaps with a number behind its name, and its folder."""
        from serve.workbench.loadtest.reports.folder import keep

        path = keep(report, self.folder)
        return replace(report, name=path.name), path


def machine() -> str:
    """What the generator runs on: `AMD EPYC 7B13, 2 of 4 cores, Linux 6.1.0`."""
    mine, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    cores = f"{mine} of {all_of_them} cores" if mine < all_of_them else f"{mine} cores"
    return f"{_processor()}, {cores}, {platform.system()} {platform.release()}"


def versions() -> Mapping[str, str]:
    """Of what makes the calls."""
    found = {"servegate": serve.__version__, "python": sys.version.split()[0]}
    for package in ("locust", "gevent", "grpcio"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()
