"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.panels import option

_CONNECTION = "Connection"

AdminUrl = Annotated[  # without envvar: a flag and a variable are not the same, see server.py
    str | None,
    option(
        _CONNECTION,
        "URL",
        "URL of the admin API (default: SERVEGATE_ADMIN_URL, or the gateway that servegate.toml "
        "in this folder configures).",
        "--admin-url",
    ),
]
Url = Annotated[
    str | None,
    option(
        _CONNECTION,
        "URL",
        "URL of the HTTP port (default: the gateway that servegate.toml in this folder "
        "configures).",
        "--url",
        envvar="SERVEGATE_URL",
    ),
]
GrpcUrl = Annotated[
    str | None,
    option(
        _CONNECTION,
        "URL",
        "URL of the gRPC port (default: the gateway that servegate.toml in this folder "
        "configures).",
        "--grpc-url",
        envvar="SERVEGATE_GRPC_URL",
    ),
]
KeyFile = Annotated[
    Path | None,
    option(
        _CONNECTION,
        "FILE",
        "File that contains an API key. Alternative: the key itself in SERVEGATE_KEY.",
        "--key-file",
        envvar="SERVEGATE_KEY_FILE",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="Reason for the change, recorded in the history."
    ),
]
