"""`servegate sync`: the agent beside a Triton."""

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
    replica: Annotated[str, typer.Option(help="The replica's name, as `replica ls` shows it.")],
    folder: Annotated[Path, typer.Option(help="The folder that its Triton reads.")],
    admin_url: AdminUrl = None,
    storage: Annotated[
        str | None, typer.Option(help="Where blobs are: a folder, s3://…. [the admin API]")
    ] = None,
    cache_bytes: Annotated[
        int, typer.Option(min=0, help="Bytes of unused blobs that are kept for a return.")
    ] = 10 << 30,
) -> None:
    """Keep the folder of one Triton as the control plane wants it, until interrupted.

    It fetches published versions, checks their digests, and never shows Triton half a version.
    The control plane's secret comes from SERVEGATE_SECRET, servegate.toml or the state folder.

    Example: servegate sync --admin-url https://control:8080 --replica gpu-1 --folder /models
    """
    settings = load({}, os.environ, Path.cwd()).settings
    secret = known_secret(settings)
    if not secret:
        raise Unauthenticated(
            "an agent needs the control plane's secret",
            try_this="SERVEGATE_SECRET, or the control plane's state folder",
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
