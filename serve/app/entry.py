"""The entry of child processes: `python -P -m serve.app.entry control` or `… workers`.

Their settings come from the environment, where their parent has put them; people use `servegate`.
"""

import faulthandler
import os
import sys

from serve.app.paths import FORKS
from serve.settings import Settings, from_environment
from serve.telemetry import configure_logging


def main() -> None:
    """Run one process of one kind until it is told to stop."""
    faulthandler.enable()  # a crash of C code says where in our code it came from
    settings = from_environment()
    configure_logging(level=settings.log_level, form=settings.log_format)
    match sys.argv[1:]:
        case ["workers"]:
            from serve.app.workers import run_workers

            run_workers(settings)
        case ["control"]:
            from serve.app.loop import run

            run("control", _control(settings))
        case other:
            sys.exit(f"unknown kind of process: {other}")


async def _control(settings: Settings) -> None:
    os.environ.setdefault(*FORKS)
    from serve.app.control import ControlPlane
    from serve.app.ports import stop_on_signals

    stop = stop_on_signals()
    await ControlPlane(settings).run(stop)


if __name__ == "__main__":
    main()
