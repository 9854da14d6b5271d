"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

AdminUrl = Annotated[  # without envvar: a flag and a variable are not the same, see server.py
    str | None,
    typer.Option(
        "--admin-url", help="The admin API.  [SERVEGATE_ADMIN_URL, or this folder's gateway]"
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="SERVEGATE_URL", help="The data port, HTTP.  [this folder's gateway]"
    ),
]
GrpcUrl = Annotated[
    str | None,
    typer.Option(
        "--grpc-url",
        envvar="SERVEGATE_GRPC_URL",
        help="The data port, gRPC.  [this folder's gateway]",
    ),
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
Reason = Annotated[str, typer.Option("--reason", help="Reason for the change; stored with it.")]
