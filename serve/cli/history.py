"""`servegate history`: what was changed, by whom and why, and the way back."""

import sys
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from serve.cli.backup import Yes, require_yes
from serve.cli.client import AdminClient, connect
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table

app = typer.Typer(
    no_args_is_help=True,
    help="Show and undo changes to the configuration, or restore an earlier state.\n\n"
    "Example: servegate history show --kind route --key digits",
    rich_markup_mode=None,
)
Number = Annotated[
    int,
    typer.Argument(
        metavar="REVISION", min=1, help="Number of a revision, from `servegate history show`."
    ),
]
_PATIENCE = 1000.0  # seconds: a configuration is tried, and comes to one replica after the other


@app.command("show")
def show_history(
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Only changes to this kind of object: route, label, model, version, key, …",
        ),
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            metavar="KEY", help="Only changes to this object: a model, or a label as MODEL:LABEL."
        ),
    ] = "",
    before: Annotated[
        int,
        typer.Option(
            min=0, metavar="REVISION", help="Only changes before this revision; 0 for all."
        ),
    ] = 0,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of changes.")
    ] = 20,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """List changes, newest first.

    Example: servegate history show --kind route --key digits
    """
    found = _list(connect(admin_url, key_file), kind=kind, key=key, before=before, limit=limit)
    if json:
        as_json(found)
        return
    table(
        ("REVISION", "AT", "AUTHOR", "KIND", "KEY", "CHANGE", "REASON"),
        [
            (
                str(one["revision"]),
                f"{one['at'][:10]} {one['at'][11:19]}Z",
                *(one[name] for name in ("author", "kind", "key", "summary", "reason")),
            )
            for one in found
        ],
    )


@app.command("diff")
def show_diff(
    revision: Number,
    other: Annotated[
        int | None,
        typer.Argument(metavar="OTHER", min=1, help="Second revision of the same object."),
    ] = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show what a revision changed.

    With a second revision, shows the difference between the two.

    Example: servegate history diff 12 17
    """
    found = _diff(connect(admin_url, key_file), revision, other)
    if json:
        as_json(found)
        return
    if not found["changes"]:
        say("no differences")
    for line in found["lines"]:
        _print_line(line)


@app.command("undo")
def undo(
    revision: Number,
    yes: Yes = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Undo one change. Later changes to other fields are kept.

    Fails if a later revision changed the same fields. The undo is recorded as a new revision. It is
    checked like any other change and can itself be undone.

    Example: servegate history undo 41 --reason 'version 3 is too slow'
    """
    admin = connect(admin_url, key_file, reason=reason, timeout=_PATIENCE)
    _go_back(admin, revision, "undo", yes=yes, json=json)


@app.command("restore")
def restore(
    revision: Number,
    yes: Yes = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Restore an object to its state after a revision.

    You can restore routes, labels, models, pools and serving configurations. To undo a revision,
    use `servegate history undo`. To restore the whole store from a backup, use `servegate
    restore`.

    Example: servegate history restore 12 --reason 'the last good split'
    """
    admin = connect(admin_url, key_file, reason=reason, timeout=_PATIENCE)
    _go_back(admin, revision, "restore", yes=yes, json=json)


app.command("rollback", hidden=True)(restore)  # its former name


def _go_back(admin: AdminClient, revision: int, verb: str, *, yes: bool, json: bool) -> None:
    one = admin.get(f"/api/history/{revision}")
    thing, path = f"{one['kind']} {one['key']}".rstrip(), f"/api/history/{revision}/{verb}"
    if verb == "undo":
        asked, is_so = f"this undoes revision {revision}", "the revision has no changes to undo"
        result = f"undid revision {revision} ({thing})"
    else:
        asked = f"this restores {thing} to revision {revision}"
        is_so = "this is already its state"
        result = f"restored {thing} to revision {revision}"
    if not yes:
        lines = admin.post(f"{path}?dry_run=true", None)["lines"]
        if lines:
            require_yes("\n".join([f"{asked}:", *lines]))
    answer = admin.post(path, None)
    if json:
        as_json(answer)
    if answer["changed"]:
        for line in answer["lines"]:
            say(f"  {line}")
        tell_done(answer, result)
        return
    say(f"warning: nothing changed: {is_so}")
    if verb == "restore":
        say(f"to undo revision {revision}: servegate history undo {revision}")


def _list(admin: AdminClient, **query: Any) -> Any:
    return admin.get(f"/api/history?{urlencode({k: v for k, v in query.items() if v})}")


def _diff(admin: AdminClient, revision: int, other: int | None) -> Any:
    query = "" if other is None else f"?with={other}"
    return admin.get(f"/api/history/{revision}/diff{query}")


def _print_line(line: str) -> None:
    """`field: old → new`, in red and green on a terminal."""
    if not sys.stdout.isatty():
        print(line)
        return
    from rich.console import Console
    from rich.text import Text

    field, _, rest = line.partition(": ")
    old, _, new = rest.partition(" → ")
    told = Text(f"{field}: ") + Text(old, style="red") + Text(" → ") + Text(new, style="green")
    Console(highlight=False, soft_wrap=True).print(told)
