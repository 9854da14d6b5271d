"""The options that many commands share."""

from typing import Annotated

import typer

AdminUrl = Annotated[
    str, typer.Option("--admin-url", envvar="SERVEGATE_ADMIN_URL", help="The admin API.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; written beside the change.")]
