"""`servegate eval dataset`: labelled datasets, sent to a gateway and looked at."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.backup import require_yes
from serve.cli.client import AdminClient, connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table
from serve.workbench.evaluation.cli.options import Label, Slices

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name from `servegate eval dataset ls`.")]


def push(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Folder with one subfolder of images per label, or .csv, .npz, .parquet or .zip "
            "file.",
        ),
    ],
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Name of the dataset (default: from PATH)."),
    ] = "",
    label: Label = "",
    slices: Slices = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Upload a dataset, or a new revision of an existing one.

    Example: servegate eval dataset push held-out/ --name held-out

    Example: servegate eval dataset push wine.csv --label quality --slices region,year
    """
    kept = sent(connect(admin_url, key_file), path, name, label, slices, json=json)
    if json:
        as_json(kept)


def list_datasets(
    admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """List the datasets on the gateway.

    Example: servegate eval dataset ls
    """
    found = connect(admin_url, key_file).get("/api/datasets")
    if json:
        as_json(found)
        return
    from serve.cli.talk import amount

    table(
        ("NAME", "REVISION", "ROWS", "CLASSES", "SIZE", "AUTHOR", "AT"),
        [
            (
                one["name"],
                str(one["revision"]),
                str(one["rows"]),
                str(len(one["classes"]) or ""),
                amount(one["size"]),
                one["author"],
                f"{one['at'][:10]} {one['at'][11:19]}Z",
            )
            for one in found
        ],
    )


def show(
    name: Name, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """Show a dataset: its rows, inputs, classes and slices.

    Example: servegate eval dataset show held-out
    """
    page = connect(admin_url, key_file).get(f"/api/datasets/{segment(name)}")
    if json:
        as_json(page)
        return
    print(f"{page['name']}, revision {page['revision']}: {page['rows']} rows")
    inputs = ", ".join(
        f"{key or 'the only input'} ({form})" for key, form in page["inputs"].items()
    )
    classes = ", ".join(f"{label}: {count}" for label, count in page["classes"].items())
    facts = {
        "inputs": inputs,
        "numbers": ", ".join(page["vector"]),
        "classes": classes[:2000],
        "slices": ", ".join(page["slices"]),
        "by": f"{page['author']}, {page['at'][:10]} {page['at'][11:19]}Z",
        "digest": page["digest"],
    }
    for key, text in facts.items():
        if text:
            print(f"  {key}: {text}")


def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Delete a dataset with all its revisions. Its evaluations are kept.

    Example: servegate eval dataset rm held-out --yes
    """
    admin = connect(admin_url, key_file)
    path = f"/api/datasets/{segment(name)}"
    if not yes:
        rows = admin.get(path)["rows"]
        require_yes(f"this deletes dataset '{name}' with {rows} rows permanently")
    removed(admin, path)
    say(f"deleted dataset '{name}'")


def sent(
    admin: AdminClient, path: Path, name: str, label: str, slices: str, *, json: bool
) -> dict[str, Any]:
    """Send a dataset, and say what it became."""
    from serve.cli.talk import LogTalk, talk
    from serve.workbench.evaluation.cli.uploads import name_of
    from serve.workbench.evaluation.cli.uploads import push as send

    talking = LogTalk() if json else talk(json=False)
    kept: dict[str, Any] = asyncio.run(
        send(admin, path, name or name_of(path), label, slices, talking)
    )
    for note in kept["notes"]:
        say(f"note: {note}")
    say(f"dataset '{kept['name']}', revision {kept['revision']}: {kept['rows']} rows")
    return kept


def removed(admin: AdminClient, path: str) -> None:
    """Take away what is behind a path; the answer has no body."""
    from serve.cli.channel import Channel
    from serve.cli.talk import LogTalk

    async def ask() -> None:
        async with admin.asynchronous() as client:
            await Channel(client, LogTalk()).ask("DELETE", path)

    asyncio.run(ask())
