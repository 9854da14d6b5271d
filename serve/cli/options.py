"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

_CONNECTION = "Connection"

AdminUrl = Annotated[  # without envvar: a flag and a variable are not the same, see server.py
    str | None,
    typer.Option(
        "--admin-url",
        metavar="URL",
        rich_help_panel=_CONNECTION,
        help="URL of the admin API (default: SERVEGATE_ADMIN_URL, or the gateway of servegate.toml "
        "in this folder).",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="SERVEGATE_URL",
        metavar="URL",
        rich_help_panel=_CONNECTION,
        help="URL of the HTTP data port (default: the gateway of servegate.toml in this folder).",
    ),
]
GrpcUrl = Annotated[
    str | None,
    typer.Option(
        "--grpc-url",
        envvar="SERVEGATE_GRPC_URL",
        metavar="URL",
        rich_help_panel=_CONNECTION,
        help="URL of the gRPC data port (default: the gateway of servegate.toml in this folder).",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        envvar="SERVEGATE_KEY_FILE",
        metavar="FILE",
        rich_help_panel=_CONNECTION,
        help="File that contains an API key. Alternative: the key itself in SERVEGATE_KEY.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Reason for the change, kept in the history."),
]
