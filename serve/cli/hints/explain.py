"""`servegate hints explain`: how a hint was reckoned, and what would change it."""

import typer

from serve.cli.client import connect, segment
from serve.cli.hints.show import Pool
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json


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
