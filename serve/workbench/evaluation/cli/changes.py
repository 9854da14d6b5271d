"""`servegate eval cancel`, `resume` and `rm`."""

from typing import Annotated

import typer

from serve.cli.backup import require_yes
from serve.cli.client import connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say
from serve.workbench.evaluation.cli.options import Identity, path_of


def cancel(
    identity: Identity,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Cancel a queued or running evaluation. Results so far are kept.

    Example: servegate eval cancel 3f9c01ab27d4
    """
    _change(identity, "cancel", admin_url, key_file, json=json)


def resume(
    identity: Identity,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Resume an evaluation.

    Calls the model for the rows that are missing or failed.

    Example: servegate eval resume 3f9c01ab27d4
    """
    _change(identity, "resume", admin_url, key_file, json=json)


def remove(
    identity: Identity,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Delete an evaluation and its results.

    Example: servegate eval rm 3f9c01ab27d4 --yes
    """
    from serve.workbench.evaluation.cli.datasets import removed

    admin = connect(admin_url, key_file)
    if not yes:
        rows = admin.get(path_of(identity))["done"]
        require_yes(f"this deletes evaluation {identity} with {rows} rows permanently")
    removed(admin, path_of(identity))
    say(f"deleted evaluation {identity}")


def _change(
    identity: str, verb: str, admin_url: str | None, key_file: KeyFile, *, json: bool
) -> None:
    page = connect(admin_url, key_file).post(f"{path_of(identity)}/{verb}", None)
    if json:
        as_json(page)
    say(f"evaluation {identity} is {page['state']}: {page['done']} of {page['total']} rows")
