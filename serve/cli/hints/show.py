"""`servegate hints show`: how many replicas pools should have now, and why.

`servegate hints explain`: how a hint was reckoned, and what would change it.
"""

from typing import Annotated

import typer

from serve.cli.client import connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table

# --- `servegate hints show` -----------------------------------------------------------------------


Pool = Annotated[str, typer.Argument(metavar="POOL", help="Pool to explain.")]
AnyPool = Annotated[str, typer.Argument(metavar="POOL", help="Pool to show (default: all pools).")]


def show(
    pool: AnyPool = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show how many replicas each pool should have, and why.

    Example: servegate hints show

    Example: servegate hints show default --json
    """
    from serve.cli.hints.view import HEADS, head, row

    admin = connect(admin_url, key_file)
    if pool:
        page = admin.get(f"/api/hints/{segment(pool)}")
        if json:
            as_json(page)
            return
        for line in head(page):
            typer.echo(line)
        return
    pages = admin.get("/api/hints")["hints"]
    if json:
        as_json(pages)
    elif pages:
        table(HEADS, [row(page) for page in pages])
    else:
        say("no hints yet; the first ones appear a few seconds after the start")


# --- `servegate hints explain` --------------------------------------------------------------------


def explain(
    pool: Pool,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Explain the scaling hint of a pool.

    Shows the demand, the capacity of a replica, and what would change the hint.

    Example: servegate hints explain default
    """
    from serve.cli.hints import arithmetic

    page = connect(admin_url, key_file).get(f"/api/hints/{segment(pool)}")
    if json:
        as_json(arithmetic.document(page))
        return
    for line in arithmetic.lines(page):
        typer.echo(line)
