"""`servegate label`: movable names for versions."""

from typing import Annotated

import typer

from serve.cli.client import connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, table

app = typer.Typer(
    no_args_is_help=True,
    help="Manage labels (movable names for versions).\n\n"
    "Example: servegate label set digits stable 1",
    rich_markup_mode=None,
)
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]
Label = Annotated[str, typer.Argument(metavar="LABEL", help="Name of the label.")]


@app.command("ls")
def list_labels(
    name: Model, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """List the labels of a model.

    Example: servegate label ls digits
    """
    labels = connect(admin_url, key_file).get(f"/api/models/{segment(name)}")["labels"]
    if json:
        as_json(labels)
        return
    table(("LABEL", "VERSION"), [(label, str(version)) for label, version in labels.items()])


@app.command("set")
def set_label(
    name: Model,
    label: Label,
    version: Annotated[
        int, typer.Argument(min=1, metavar="VERSION", help="Number of the version.")
    ],
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Point a label to a version. The version must be ready.

    Example: servegate label set digits stable 1
    """
    path = f"/api/models/{segment(name)}/labels/{segment(label)}"
    answer = connect(admin_url, key_file, reason=reason).put(path, {"version": version})
    tell_done(answer, f"{name}:{label} points to version {version}")


@app.command("rm")
def remove_label(
    name: Model,
    label: Label,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Remove a label. Calls that use the label then fail.

    Example: servegate label rm digits candidate
    """
    path = f"/api/models/{segment(name)}/labels/{segment(label)}"
    tell_done(
        connect(admin_url, key_file, reason=reason).delete(path), f"removed label {name}:{label}"
    )
