"""`servegate route`: the traffic split of a model."""

from typing import Annotated

import typer

from serve.cli.client import connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.core.routes import Split

app = typer.Typer(
    no_args_is_help=True,
    help="Manage routes (how a model's traffic is split between its versions).\n\n"
    "Example: servegate route set digits 1=90 2=10",
    rich_markup_mode=None,
)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]


@app.command("show")
def show_route(
    name: Model, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """Show the traffic split of a model.

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
        say(
            "no route is set, so the newest version gets all traffic; set one with: "
            f"servegate route set {name} …"
        )


@app.command("set")
def set_route(
    name: Model,
    shares: Annotated[
        list[str],
        typer.Argument(
            metavar="VERSION=WEIGHT", help="Relative weight of each version, for example 1=90 2=10."
        ),
    ],
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Set the traffic split of a model.

    The command returns once every gateway worker uses the new split.

    Example: servegate route set digits 1=90 2=10
    """
    split = Split.parse(shares)
    body = {"split": {str(version): weight for version, weight in split.shares}}
    path = f"/api/routes/{segment(name)}"
    shown = f"{split}" if split.total == 100 else f"{split} ({split.percent})"
    tell_done(
        connect(admin_url, key_file, reason=reason).put(path, body),
        f"traffic split of {name}: {shown}",
    )
