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

State = Annotated[str | None, typer.Option(help="Folder for run-time state. [.servegate]")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="PostgreSQL URL of the store; better without the password: use ~/.pgpass."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    state: State = None,
    database: DatabaseUrl = None,
) -> None:
    """Write the store to a file: routes, labels, keys' digests, version records, the history.

    It may run beside a gateway. Published files are not in it: they are in the storage.

    Example: servegate backup servegate-monday.jsonl
    """
    from serve.app.backups import back_up  # SQL takes a while to import

    say(f"{file} holds {back_up(_settings(state, database), file)}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `servegate backup` wrote.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Give up what the store holds now.")
    ] = False,
    yes: Yes = False,
    state: State = None,
    database: DatabaseUrl = None,
) -> None:
    """Fill the store from a backup, while no gateway runs on it.

    Example: servegate restore servegate-monday.jsonl --database postgresql://servegate@db/servegate
    """
    from serve.app import backups

    settings = _settings(state, database)
    if replace and not yes:
        where = backups.store_name(settings)
        require_yes(f"everything in {where} is replaced by what {file} holds")
    done = backups.restore(settings, file, replace=replace, author=author())
    say(f"{backups.store_name(settings)} holds {done} from {file}")


def require_yes(what: str) -> None:
    """Ask on a terminal before something is given up; `Invalid` where nobody can be asked."""
    if not sys.stdin.isatty():
        raise Invalid("nobody can be asked here", why=what, try_this="--yes")
    say(what)
    typer.confirm("Go on?", abort=True, err=True)


def _settings(state: str | None, database: str | None) -> Settings:
    return load({"state": state, "database": database}, os.environ, Path.cwd()).settings
