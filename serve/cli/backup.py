"""`servegate backup` and `restore`: the store, with its whole history, in one file."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from serve.cli.client import author
from serve.cli.output import say
from serve.core.errors import Invalid
from serve.settings import Settings, load

State = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder for runtime state (default: .servegate)."),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="PostgreSQL URL of the store (default: the database in the state folder). Put the "
        "password in ~/.pgpass, not in the URL.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup file to write.")],
    state: State = None,
    database: DatabaseUrl = None,
) -> None:
    """Back up the store to a file.

    The backup contains routes, labels, hashes of API keys, version records and the change history.
    It does not contain the model files, which are in the storage. You can run this command while
    the gateway is running.

    Example: servegate backup servegate-monday.jsonl
    """
    from serve.app.backups import back_up  # SQL takes a while to import

    say(f"wrote {file}: {back_up(_settings(state, database), file)}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup file to read.")],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Overwrite the current content of the store (default: fail if it is not empty).",
        ),
    ] = False,
    yes: Yes = False,
    state: State = None,
    database: DatabaseUrl = None,
) -> None:
    """Restore the store from a backup. Stop the control plane first.

    Example: servegate restore servegate-monday.jsonl --database postgresql://servegate@db/servegate
    """
    from serve.app import backups

    settings = _settings(state, database)
    if replace and not yes:
        where = backups.store_name(settings)
        require_yes(f"this replaces everything in {where} with the content of {file}")
    done = backups.restore(settings, file, replace=replace, author=author())
    say(f"restored {backups.store_name(settings)} from {file}: {done}")


def require_yes(what: str) -> None:
    """Ask on a terminal before something is given up; `Invalid` where nobody can be asked."""
    if not sys.stdin.isatty():
        raise Invalid(
            "the command needs a confirmation, but stdin is not a terminal",
            why=what,
            try_this="pass --yes",
        )
    say(what)
    typer.confirm("Continue?", abort=True, err=True)


def _settings(state: str | None, database: str | None) -> Settings:
    return load({"state": state, "database": database}, os.environ, Path.cwd()).settings
