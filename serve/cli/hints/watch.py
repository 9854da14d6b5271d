"""`servegate hints watch`: each change of a hint, as soon as there is one."""

from typing import Annotated

import typer

from serve.cli.hints.show import AnyPool
from serve.cli.options import AdminUrl, AsJson, KeyFile


def watch(
    pool: AnyPool = "",
    length: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="Duration, for example 30s or 5m (default: until Ctrl-C).",
        ),
    ] = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Print scaling hints when they change.

    Example: servegate hints watch

    Example: servegate hints watch default --for 10m --json
    """
    import asyncio

    from serve.cli.client import connect
    from serve.cli.endings import report_end
    from serve.cli.hints.long_polls import HintPoller
    from serve.cli.talk import talk
    from serve.core.texts import parse_seconds

    talking = talk(json=json)
    with report_end(talking, lambda: "stopped watching"):
        seconds = parse_seconds(length) if length else None
        admin = connect(admin_url, key_file)
        asyncio.run(HintPoller(admin, talking, pool).until(seconds))
        talking.tell("result", ok=True, exit=0)
