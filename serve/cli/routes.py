"""`servegate route`: how a model's calls are divided over its versions."""

from typing import Annotated

import typer

from serve.cli.client import connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.core.routes import Split

app = typer.Typer(
    no_args_is_help=True,
    help="Shares of traffic.\n\nExample: servegate route set digits 1=90 2=10",
    rich_markup_mode=None,
)


@app.command("show")
def show_route(
    name: str, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """Show how a model's calls are divided.

    Example: servegate route show digits
    """
    route = connect(admin_url, key_file).get(f"/api/routes/{segment(name)}")
    if json:
        as_json(route)
        return
    total = sum(route["split"].values())
    table(
        ("VERSION", "WEIGHT", "SHARE"),
        [
            (version, str(weight), f"{100 * weight / total:.4g} %")
            for version, weight in route["split"].items()
        ],
    )
    if not route["routed"]:
        say(f"nobody has set a route: the newest version serves. Try: servegate route set {name} …")


@app.command("set")
def set_route(
    name: str,
    shares: Annotated[list[str], typer.Argument(help="VERSION=WEIGHT, once per version.")],
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Divide a model's calls; returns when every worker does so.

    Example: servegate route set digits 1=90 2=10
    """
    split = Split.parse(shares)
    body = {"split": {str(version): weight for version, weight in split.shares}}
    path = f"/api/routes/{segment(name)}"
    shown = f"{split}" if split.total == 100 else f"{split} ({split.percent})"
    tell_done(
        connect(admin_url, key_file, reason=reason).put(path, body), f"{name} is split {shown}"
    )
