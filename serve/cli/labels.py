"""`servegate label`: movable names for versions."""

from typing import Annotated

import typer

from serve.cli.client import connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, table

app = typer.Typer(
    no_args_is_help=True,
    help="Movable names for versions.\n\nExample: servegate label set digits stable 1",
    rich_markup_mode=None,
)


@app.command("ls")
def list_labels(
    name: str, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
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
    name: str,
    label: str,
    version: Annotated[int, typer.Argument(min=1)],
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Make a label name a version; the version must be ready.

    Example: servegate label set digits stable 1
    """
    path = f"/api/models/{segment(name)}/labels/{segment(label)}"
    answer = connect(admin_url, key_file, reason=reason).put(path, {"version": version})
    tell_done(answer, f"{name}:{label} is version {version}")


@app.command("rm")
def remove_label(
    name: str,
    label: str,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Remove a label; calls that name it are refused from then on.

    Example: servegate label rm digits candidate
    """
    path = f"/api/models/{segment(name)}/labels/{segment(label)}"
    tell_done(
        connect(admin_url, key_file, reason=reason).delete(path), f"{name}:{label} is removed"
    )
