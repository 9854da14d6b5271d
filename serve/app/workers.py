"""The workers of one machine: everything is imported once, then they are forked.

`servegate up` and `servegate proxy` start this as one program. What was imported is memory that all
workers share for as long as nobody writes to it; `gc.freeze` keeps the collector from writing to
it. Nothing else is made before the fork: no event loop, no socket, no source of randomness, and no
secret is read. Each worker opens its own sockets on the shared ports (SO_REUSEPORT).
"""

import gc

from serve.app.journals import preload
from serve.app.loop import run
from serve.app.ports import stop_on_signals
from serve.app.secret import shared_secret
from serve.app.worker import ProxyWorker
from serve.processes import Forked, carry_name
from serve.processes.kernel import share_memory
from serve.settings import Settings

_MARGIN = 1.0  # seconds beyond the drain, in which a worker closes what is left


def run_workers(settings: Settings) -> None:
    """Keep all workers running until SIGTERM; then let them drain."""
    carry_name("sg-workers")
    forked = Forked(
        tuple(f"worker-{number}" for number in range(settings.workers)),
        lambda number: _work(settings, number),
        grace=settings.drain_timeout + _MARGIN,
    )
    preload(settings)
    gc.collect()
    gc.freeze()
    forked.keep()


def _work(settings: Settings, number: int) -> None:
    """The life of one worker, in its own process."""
    carry_name(f"sg-worker-{number}")
    share_memory()
    run(f"worker-{number}", _serve(settings, number))


async def _serve(settings: Settings, number: int) -> None:
    stop = stop_on_signals()
    worker = ProxyWorker(settings, number, secret=shared_secret(settings))
    gc.freeze()  # what start-up has made lives as long as the process
    await worker.run(stop)
