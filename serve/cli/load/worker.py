"""`servegate load worker`: calls from this machine for a load test on another one."""

from typing import Annotated

import typer


def work(
    master: Annotated[
        str,
        typer.Option(
            "--master", metavar="HOST:PORT", help="Where `servegate load run --listen` waits."
        ),
    ],
    patience: Annotated[str, typer.Option("--patience", help="How long to look for it.")] = "60s",
) -> None:
    """Make calls for a load test that another machine leads, run after run until it is over.

    Example: servegate load worker --master loadmaster:5557
    """
    from serve.load.arrivals import parse_seconds
    from serve.load.running import serve_worker

    status = serve_worker(master, patience=parse_seconds(patience))
    if status:
        raise typer.Exit(status)
