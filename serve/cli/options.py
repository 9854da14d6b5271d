"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

AdminUrl = Annotated[
    str, typer.Option("--admin-url", envvar="SERVEGATE_ADMIN_URL", help="The admin API.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        envvar="SERVEGATE_KEY_FILE",
        help="A file with an API key; or set SERVEGATE_KEY. Never an argument: ps shows those.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; written beside the change.")]
