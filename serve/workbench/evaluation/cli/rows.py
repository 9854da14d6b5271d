"""`servegate eval rows` and `export`: what became of each row."""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from serve.cli.client import AdminClient, connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table
from serve.core.errors import Invalid
from serve.workbench.evaluation.cli.options import Identity, path_of


class ExportFormat(StrEnum):
    """What rows can be exported as."""

    CSV = "csv"
    JSON = "json"


def list_rows(
    identity: Identity,
    bucket: Annotated[
        str,
        typer.Option(
            metavar="BUCKET",
            help="Only rows with this result: both-right, only-a, only-b, both-wrong, right, "
            "wrong or failed.",
        ),
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option("--slice", metavar="NAME=VALUE", help="Only rows of this slice (repeatable)."),
    ] = None,
    label: Annotated[str, typer.Option(metavar="LABEL", help="Only rows with this label.")] = "",
    predicted: Annotated[
        str,
        typer.Option(metavar="CLASS", help="Only rows for which a version predicted this class."),
    ] = "",
    start: Annotated[
        int, typer.Option("--from", min=0, metavar="N", help="Number of matching rows to skip.")
    ] = 0,
    count: Annotated[
        int, typer.Option(min=1, max=200, metavar="N", help="Number of rows to show.")
    ] = 50,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """List rows of an evaluation with their predictions.

    Example: servegate eval rows 3f9c01ab27d4 --bucket only-a
    """
    asked = [("from", start), ("count", count), *(("slice", one) for one in where or [])]
    asked += [("bucket", bucket)] if bucket else []
    asked += [("label", label)] if label else []
    asked += [("predicted", predicted)] if predicted else []
    page = connect(admin_url, key_file).get(f"{path_of(identity)}/rows?{urlencode(asked)}")
    if json:
        as_json(page)
        return
    table(
        ("ROW", "NAME", "LABEL", "A", "SCORE", "B", "SCORE", "BUCKET"),
        [
            (
                str(one["row"]),
                one["name"],
                one["label"],
                *_told(one["a"]),
                *_told(one["b"]),
                one["bucket"],
            )
            for one in page["rows"]
        ],
    )
    say(f"{len(page['rows'])} of {page['total']} rows")


def export_rows(
    identity: Identity,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")],
    form: Annotated[
        ExportFormat, typer.Option("--format", metavar="csv|json", help="Format of the file.")
    ] = ExportFormat.CSV,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Export all rows of an evaluation to a file.

    Example: servegate eval export 3f9c01ab27d4 --format csv --out rows.csv
    """
    admin = connect(admin_url, key_file)
    asyncio.run(_download(admin, f"{path_of(identity)}/export.{form.value}", out))
    say(f"wrote {out}")


async def _download(admin: AdminClient, path: str, out: Path) -> None:
    from serve.cli.channel import Away, Channel
    from serve.cli.talk import LogTalk

    part = out.with_name(f"{out.name}.part")
    try:
        async with admin.asynchronous() as client:
            with part.open("wb") as file:
                await Channel(client, LogTalk()).download(path, file)
        part.replace(out)
    except Away as away:
        raise away.error from away
    except OSError as error:
        raise Invalid(f"cannot write '{out}'", why=error.strerror or str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def _told(told: Mapping[str, Any] | None) -> tuple[str, str]:
    if told is None:
        return "", ""
    if told["error"]:
        return "failed", told["error"][:60]
    return told["predicted"], "" if told["score"] is None else f"{told['score']:.4g}"
