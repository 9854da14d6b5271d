"""`servegate load worker`: calls from this machine for a load test on another one."""

from typing import Annotated

import typer


def work(
    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="HOST:PORT",
            help="Address of the coordinating process, as given to `servegate load run --listen`.",
        ),
    ],
    patience: Annotated[
        str,
        typer.Option(
            "--patience",
            metavar="DURATION",
            help="Time limit for connecting to the coordinating process.",
        ),
    ] = "60s",
) -> None:
    """Generate calls for a load test that is coordinated from another machine.

    Example: servegate load worker --master loadmaster:5557
    """
    from serve.core.texts import parse_seconds
    from serve.workbench.loadtest.runner import serve_worker

    status = serve_worker(master, patience=parse_seconds(patience))
    if status:
        raise typer.Exit(status)
