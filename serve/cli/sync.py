"""`servegate sync`: the agent that keeps a Triton's model folder up to date."""

import os
from pathlib import Path
from typing import Annotated

import typer

from serve.app.secret import known_secret
from serve.cli.options import AdminUrl
from serve.cli.output import say
from serve.cli.server import admin_server, announced
from serve.core.errors import Unauthenticated
from serve.settings import load
from serve.trust import trust


def sync(
    replica: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the replica, as `replica ls` shows it.")
    ],
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Model repository of the replica's Triton.")
    ],
    admin_url: AdminUrl = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Storage to download files from: a folder, s3://, gs:// or az:// (default: "
            "download through the admin API).",
        ),
    ] = None,
    cache_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="BYTES",
            show_default=False,
            help="Maximum size of the cache for files of earlier versions, in bytes (default: 10 "
            "GiB).",
        ),
    ] = 10 << 30,
) -> None:
    """Keep a Triton's model repository in sync with the control plane, until Ctrl-C.

    This command is the agent that runs next to a Triton. It downloads the versions that the control
    plane has published for the replica, and verifies their checksums. Triton never sees an
    incomplete version.

    It needs the control plane's secret from SERVEGATE_SECRET, servegate.toml or the state folder.

    Example: servegate sync --admin-url https://control:8080 --replica gpu-1 --folder /models
    """
    settings = load({}, os.environ, Path.cwd()).settings
    secret = known_secret(settings)
    if not secret:
        raise Unauthenticated(
            "the agent needs the control plane's secret",
            try_this="set SERVEGATE_SECRET, or share the control plane's state folder",
        )
    import uvloop

    from serve.app.sync import Orders, run_sync

    orders = Orders(
        url=announced(admin_server(admin_url)).url,
        replica=replica,
        folder=folder.absolute(),
        secret=secret,
        cache_bytes=cache_bytes,
        storage=storage if storage is not None else "",
    )
    uvloop.run(run_sync(orders, say=say, trust=trust))
