"""The entry of child processes: `python -P -m serve.app.entry control` or `… worker N`.

Their settings come from the environment, where their parent has put them; people use `servegate`.
"""

import gc
import sys

import uvloop

from serve.app.ports import stop_on_signals
from serve.core.errors import ServegateError
from serve.settings import Settings, from_environment
from serve.telemetry import configure_logging


def main() -> None:
    """Run one process of one kind until it is told to stop."""
    settings = from_environment()
    configure_logging(level=settings.log_level, form=settings.log_format)
    kind, *rest = sys.argv[1:]
    try:
        if kind == "worker":
            uvloop.run(_worker(settings, int(rest[0])))
        else:
            uvloop.run(_control(settings))
    except* ServegateError as errors:
        for error in errors.exceptions:
            print(f"servegate {kind}: {error}", file=sys.stderr)
        sys.exit(1)


async def _worker(settings: Settings, number: int) -> None:
    from serve.app.secret import shared_secret
    from serve.app.worker import Worker

    stop = stop_on_signals()
    worker = Worker(settings, number, secret=shared_secret(settings))
    gc.freeze()  # what start-up has made lives as long as the process
    await worker.run(stop)


async def _control(settings: Settings) -> None:
    from serve.app.control import ControlPlane

    stop = stop_on_signals()
    await ControlPlane(settings).run(stop)


if __name__ == "__main__":
    main()
