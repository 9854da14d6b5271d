"""`servegate model load` and `unload`: a whole model, or one version that nothing refers to."""

from typing import Annotated

import typer

from serve.cli.asked import parse_asked
from serve.cli.client import connect, segment
from serve.cli.options import AdminUrl, KeyFile, Reason
from serve.cli.output import say
from serve.cli.versions import number_of, path_of

Which = Annotated[str, typer.Argument(metavar="NAME[@V]", help="Model, or one version of it.")]
Wait = Annotated[
    float,
    typer.Option(min=0, max=3600, metavar="SECONDS", help="Maximum time to wait for the result."),
]


def load(
    which: Which,
    wait: Wait = 60.0,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Reload a model on all replicas, or pin a version so that it stays loaded.

    A version that you load stays loaded even if nothing refers to it.

    Example: servegate model load digits@3
    """
    asked = parse_asked(which)
    admin = connect(admin_url, key_file, reason=reason, timeout=wait + 10.0)
    if not asked.selector:
        admin.post(f"/api/models/{segment(asked.model)}/load?wait={wait:g}", {})
        say(f"loaded {asked.model}")
        return
    number = number_of(admin, asked)
    page = admin.patch(path_of(asked.model, number), {"keep": True})
    name = f"{asked.model}@{number}"
    say(f"{name} is {page['state']}; it stays loaded until you run servegate model unload {name}")


def unload(
    which: Which,
    wait: Wait = 60.0,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Unload a model, or unpin a version.

    Example: servegate model unload digits@3
    """
    asked = parse_asked(which)
    admin = connect(admin_url, key_file, reason=reason, timeout=wait + 10.0)
    if not asked.selector:
        admin.post(f"/api/models/{segment(asked.model)}/unload?wait={wait:g}", {})
        say(f"unloaded {asked.model}; load it again with: servegate model load {asked.model}")
        return
    number = number_of(admin, asked)
    page = admin.patch(path_of(asked.model, number), {"keep": False})
    say(f"{asked.model}@{number} is {page['state']}; it is unloaded when nothing refers to it")
