"""The admin listener of a control plane: the FastAPI application on its port."""

import logging
import time
from collections.abc import Callable

from serve.app.serving import Server
from serve.control.fleet import Fleet
from serve.control.models import Models
from serve.control.snapshots import Publisher
from serve.core.replicas import Replica
from serve.listeners.admin.application import create
from serve.listeners.admin.context import Control
from serve.settings import Settings
from serve.triton import metrics as triton_metrics
from serve.triton.metrics import Readings

_log = logging.getLogger("servegate.admin")
_GRACE = 2  # seconds for requests in flight when the process stops


def admin_server(
    settings: Settings,
    *,
    models: Models,
    fleet: Fleet,
    publisher: Publisher,
    metrics: Callable[[], bytes],
    secret: str,
) -> Server:
    """The server, ready to be run."""
    control = Control(
        models=models,
        fleet=fleet,
        publisher=publisher,
        readings=_scrape,
        metrics=metrics,
        clock=time.monotonic,
        secret=secret,
    )
    return Server(
        create(control, hosts=settings.allowed_hosts),
        host=settings.admin_host,
        port=settings.admin_port,
        timeout_graceful_shutdown=_GRACE,
    )


async def _scrape(replica: Replica) -> Readings | None:
    """A replica's own metrics; None when it does not tell them within a second."""
    import aiohttp  # only needed once somebody asks

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session,
            session.get(replica.metrics_url) as response,
        ):
            text = await response.text()
            return triton_metrics.read(text) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        _log.debug("no metrics from %s: %s", replica.name, error)
        return None
