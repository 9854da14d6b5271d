"""Reports on disk: a folder each, written whole or not at all, and never over another one.

    <folder>/<name>/report.json     everything
    <folder>/<name>/report.html     the page, which needs nothing else
    <folder>/<name>/line.json       what a list shows of it

A report is written into a hidden folder beside its own, which is renamed when all of it is there.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from serve.core.errors import Invalid, NotFound
from serve.core.names import check_report_name, is_report_name
from serve.workbench.loadtest.reports.report import LoadReport

FOLDER = Path("load-reports")
_REPORT, _PAGE, _LINE = "report.json", "report.html", "line.json"
_BLAND = re.compile(r"[^A-Za-z0-9._@+-]+")


@dataclass(frozen=True, slots=True)
class ReportListing:
    """What a list shows of a report.

    `begun` is as in the report. `runs`: how many. `finding`: the first one. Of a report that cannot
    be read only `name` is known, and `problem`.
    """

    name: str
    title: str = ""
    scenario: str = ""
    model: str = ""
    begun: str = ""
    passed: bool | None = None
    runs: int = 0
    finding: str = ""
    problem: str = ""


def name_of(begun: datetime, model: str, scenario: str) -> str:
    """`20261122-101500-digits-smoke`; what cannot be in a path becomes a dash."""
    return f"{begun:%Y%m%d-%H%M%S}-{_BLAND.sub('-', model)}-{_BLAND.sub('-', scenario)}"


def keep(report: LoadReport, folder: Path = FOLDER) -> Path:
    """Write it, and return its folder.

    Where another report has its name, a number is added to it: `-2`. `Invalid` for a name that
    cannot be one, or a folder that cannot be written to.
    """
    check_report_name(report.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{report.name}.{secrets.token_hex(4)}"
        try:
            return _place(report, folder, hidden)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except OSError as error:
        raise Invalid(
            f"the load report cannot be written to {folder}",
            why=error.strerror or str(error),
            try_this="use --out FOLDER",
        ) from error


def read(which: Path | str, folder: Path = FOLDER) -> LoadReport:
    """A report by its folder, by its file, or by its name in `folder`.

    `NotFound` where there is none, `Invalid` where it is damaged or of another version.
    """
    path = _file(Path(which), folder)
    return LoadReport.from_json(_json(path))


def ls(folder: Path = FOLDER) -> tuple[ReportListing, ...]:
    """All reports in a folder, the newest first; those that cannot be read come last and say why.

    Only the small file of each is read, where it has one.
    """
    if not folder.is_dir():
        return ()
    lines = [
        _line(path) for path in folder.iterdir() if path.is_dir() and is_report_name(path.name)
    ]
    return tuple(sorted(lines, key=lambda line: (line.begun, _age(line.name)), reverse=True))


def _place(report: LoadReport, folder: Path, hidden: Path) -> Path:
    """Write into `hidden`, and rename it to the first name that is free."""
    from serve.workbench.loadtest.reports.page import render

    hidden.mkdir()
    number = 1
    while True:
        named = report if number == 1 else replace(report, name=f"{report.name}-{number}")
        number += 1
        final = folder / named.name
        if final.exists():
            continue
        (hidden / _REPORT).write_text(json.dumps(named.to_json(), separators=(",", ":")), "utf-8")
        (hidden / _PAGE).write_text(render(named), "utf-8")
        (hidden / _LINE).write_text(json.dumps(asdict(_head(named))), "utf-8")
        try:
            return hidden.rename(final)
        except OSError:
            if not final.exists():  # somebody else was not faster: it is something else
                raise


def _head(report: LoadReport) -> ReportListing:
    return ReportListing(
        name=report.name,
        title=report.title,
        scenario=report.scenario,
        model=report.model,
        begun=report.begun,
        passed=report.passed,
        runs=len(report.runs),
        finding=report.findings[0] if report.findings else "",
    )


def _line(path: Path) -> ReportListing:
    try:
        if (path / _LINE).exists():
            return replace(ReportListing(**_json(path / _LINE)), name=path.name)
        return replace(_head(read(path)), name=path.name)
    except (Invalid, NotFound, TypeError) as error:
        return ReportListing(path.name, problem=str(error))


def _age(name: str) -> tuple[str, int]:
    """By the time in the name, and the number behind it: 2 comes before 10."""
    plain, _, number = name.rpartition("-")
    is_numbered = number.isdecimal() and len(number) < 5
    return (plain, int(number)) if is_numbered else (name, 1)


def _file(path: Path, folder: Path) -> Path:
    for each in (path, path / _REPORT, folder / path / _REPORT):
        if each.is_file():
            return each.parent / _REPORT if each.name in (_PAGE, _LINE) else each
    raise NotFound(f"there is no load report {path}", try_this=f"servegate load ls --out {folder}")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Invalid(f"{path} cannot be read", why=error.strerror or str(error)) from error
    except ValueError as error:
        raise Invalid(f"{path} is not JSON", why=str(error)) from error
