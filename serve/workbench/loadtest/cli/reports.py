"""`servegate load report | compare | ls`: what load tests have left, and how two of them differ."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.client import connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table
from serve.core.errors import CheckFailed, Invalid
from serve.workbench.loadtest.cli import options

if TYPE_CHECKING:
    from serve.cli.server import AdminServer
    from serve.workbench.loadtest.reports.comparison import Ratio
    from serve.workbench.loadtest.reports.report import LoadReport

Which = Annotated[
    str,
    typer.Argument(
        metavar="PATH|NAME",
        help="Report folder or file, or the name of a report in the folder given by --out.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="File to write the report to, as an HTML page."),
]
_LIMIT = re.compile(r"([a-z0-9.]+)\s*([<>])\s*([0-9.]+)")


def show_report(
    which: Which,
    html: Html = None,
    share: options.Share = False,
    out: options.Folder = options.DEFAULT_FOLDER,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show the report of a load test.

    Example: servegate load report 20261122-101500-digits-smoke

    Example: servegate load report load-reports/before --html before.html
    """
    from serve.cli.talk import LogTalk
    from serve.workbench.loadtest.cli.view import document, show
    from serve.workbench.loadtest.reports.folder import read
    from serve.workbench.loadtest.reports.page import render

    report = read(which, out)
    path = Path(which) if Path(which).exists() else out / which
    path = path if path.is_dir() else path.parent
    if html is not None:
        _write(html, render(report))
    if share:
        shared(report, admin_url, key_file)
    if json:
        as_json(document(report, path))
        return
    show(LogTalk(), report, path)


def compare_reports(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="Report of the first load test: a path or name, as for `load report`.",
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Report of the second load test.")],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="File to write the comparison to, as an HTML page."
        ),
    ] = None,
    fail_if: Annotated[
        str,
        typer.Option(
            "--fail-if",
            metavar="CONDITIONS",
            help="Exit with status 7 if the entire confidence interval of a ratio is beyond a "
            "limit, for example 'p99>1.1'.",
        ),
    ] = "",
    out: options.Folder = options.DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Compare the reports of two load tests.

    The command prints the ratio after/before of each metric with its 95 % confidence interval.

    Example: servegate load compare before after --fail-if 'p99>1.1,rate<0.95'
    """
    from serve.workbench.loadtest.reports.comparison import compare
    from serve.workbench.loadtest.reports.folder import read
    from serve.workbench.loadtest.reports.page import render_comparison

    old, new = (read(which, out) for which in (before, after))
    ratios = compare(old.runs, new.runs)
    beyond = _beyond(fail_if, ratios)
    if html is not None:
        _write(html, render_comparison(old, new, ratios))
    if json:
        as_json([{**_ratio(one), "beyond": one.name in beyond} for one in ratios])
    else:
        heads = ("AFTER / BEFORE", "RATIO", "LOW", "HIGH", "VERDICT")
        table(heads, [_line(one) for one in ratios])
    if beyond:
        error = CheckFailed("the second load test is worse than --fail-if allows", beyond.values())
        error.code = "ratio_beyond"
        raise error


def list_reports(
    out: options.Folder = options.DEFAULT_FOLDER,
    those_shared: Annotated[
        bool, typer.Option("--shared", help="List the reports on the gateway instead.")
    ] = False,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """List the reports, newest first.

    Example: servegate load ls --out load-reports
    """
    from serve.workbench.loadtest.reports.folder import ls

    if those_shared:
        found = connect(admin_url, key_file).get("/api/load/reports")
    else:
        found = [asdict(one) for one in ls(out)]
    if json:
        as_json(found)
        return
    verdicts = {True: "passed", False: "failed", None: ""}
    table(
        ("NAME", "STARTED", "MODEL", "KIND", "VERDICT", "FINDING"),
        [
            (
                one["name"],
                f"{one['begun'][:10]} {one['begun'][11:19]}Z" if one["begun"] else "",
                one["model"],
                one["scenario"],
                verdicts[one["passed"]],
                one["finding"] or one.get("problem", ""),
            )
            for one in found
        ],
    )


def shared(report: "LoadReport", admin: "AdminServer | str | None", key_file: Path | None) -> None:
    """Upload a report to the gateway."""
    gateway = connect(admin, key_file)
    gateway.post("/api/load/reports", report.to_json())
    say(f"  shared: {report.name} on {gateway.url}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot write {path}", why=error.strerror or str(error)) from error
    say(f"  page: {path}")


def _beyond(text: str, ratios: "Sequence[Ratio]") -> dict[str, str]:
    """Sentences by ratio, for each whose whole interval is on the wrong side of its limit."""
    found: dict[str, str] = {}
    by_name = {one.name: one for one in ratios}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _LIMIT.fullmatch(part)
        if match is None or match[1] not in by_name or match[3].count(".") > 1:
            raise Invalid(
                f"--fail-if cannot be '{part}'",
                why=f"expected NAME<RATIO or NAME>RATIO, with one of {', '.join(by_name)}",
                try_this="--fail-if 'p99>1.1'",
            )
        one, limit = by_name[match[1]], float(match[3])
        if one.low > limit if match[2] == ">" else one.high < limit:
            found[one.name] = (
                f"{one.name}: ×{one.ratio:.3f}, {one.low:.3f} to {one.high:.3f} ({part})"
            )
    return found


def _line(one: "Ratio") -> tuple[str, ...]:
    from serve.workbench.loadtest.reports.amounts import figures
    from serve.workbench.loadtest.reports.comparison import verdict

    shown = (f"×{figures(value)}" for value in (one.ratio, one.low, one.high))
    return one.name, *shown, verdict(one)


def _ratio(one: "Ratio") -> dict[str, Any]:
    from serve.workbench.loadtest.cli.view import number

    values = {name: number(value) for name, value in asdict(one).items() if name != "name"}
    return {"name": one.name, **values}
