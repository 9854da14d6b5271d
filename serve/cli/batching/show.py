"""`servegate batching show`: how a version is batched, and what came of that."""

import sys

import typer

from serve.cli.asked import parse_asked
from serve.cli.client import connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json
from serve.cli.versions import Which, called_number


def show(
    which: Which,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show a version's batching configuration, with recommendations.

    Without a version, shows the one that receives most of the model's traffic.

    Example: servegate batching show digits

    Example: servegate batching show digits:stable --json
    """
    asked = parse_asked(which)
    admin = connect(admin_url, key_file)
    number = called_number(admin, asked)
    page = admin.get(f"/api/models/{segment(asked.model)}/versions/{number}/batching")
    if json:
        as_json(page)
        return
    from serve.cli.batching.view import lines

    for line in lines(page, blocks=_draws_blocks()):
        typer.echo(line)


def _draws_blocks() -> bool:
    """Whether there is a terminal that has block characters."""
    return sys.stdout.isatty() and "utf" in (sys.stdout.encoding or "").lower()
