"""`servegate model load` and `unload`: a whole model, or one version that nothing refers to."""

from typing import Annotated

import typer

from serve.cli.asked import parse_asked
from serve.cli.client import connect, segment
from serve.cli.options import AdminUrl, KeyFile, Reason
from serve.cli.output import say
from serve.cli.versions import number_of, path_of

Which = Annotated[str, typer.Argument(metavar="NAME[@V]", help="A model, or one version of it.")]
Wait = Annotated[float, typer.Option(min=0, max=3600, help="Seconds to wait until it is done.")]


def load(
    which: Which,
    wait: Wait = 60.0,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Load a model anew everywhere; or keep a version loaded although nothing refers to it.

    Example: servegate model load digits@3
    """
    asked = parse_asked(which)
    admin = connect(admin_url, key_file, reason=reason, timeout=wait + 10.0)
    if not asked.selector:
        admin.post(f"/api/models/{segment(asked.model)}/load?wait={wait:g}", {})
        say(f"{asked.model} is loaded")
        return
    number = number_of(admin, asked)
    page = admin.patch(path_of(asked.model, number), {"keep": True})
    name = f"{asked.model}@{number}"
    say(f"{name} is {page['state']}, and stays loaded until: servegate model unload {name}")


def unload(
    which: Which,
    wait: Wait = 60.0,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Unload a model everywhere; or let a version go that `model load` has kept.

    Example: servegate model unload digits@3
    """
    asked = parse_asked(which)
    admin = connect(admin_url, key_file, reason=reason, timeout=wait + 10.0)
    if not asked.selector:
        admin.post(f"/api/models/{segment(asked.model)}/unload?wait={wait:g}", {})
        say(f"{asked.model} is unloaded, until: servegate model load {asked.model}")
        return
    number = number_of(admin, asked)
    page = admin.patch(path_of(asked.model, number), {"keep": False})
    say(f"{asked.model}@{number} is {page['state']}, and goes once nothing else needs it")
