"""The admin listeners of a control plane: the FastAPI application, on its port and inside.

Inside is a Unix socket in the state folder. It is for our own processes on the same machine, which
so need no certificate to trust, and none to show.
"""

import logging
import ssl
from pathlib import Path

from serve.app.serving import Server
from serve.control.delivering.agents import AgentDelivery
from serve.core.replicas import Replica
from serve.listeners.admin.application import create
from serve.listeners.admin.context import Control
from serve.listeners.admin.sync import sync_router
from serve.settings import Settings
from serve.triton import metrics as triton_metrics
from serve.triton.metrics import Readings

_log = logging.getLogger("servegate.admin")
_GRACE = 2  # seconds for requests in flight when the process stops


def admin_servers(
    settings: Settings,
    control: Control,
    *,
    agents: AgentDelivery | None,
    tls: ssl.SSLContext | None,
    inside: Path,
) -> tuple[Server, Server]:
    """The servers, ready to be run: the port's, and the one `inside`."""
    internal = [sync_router(agents, control.storage)] if agents else []
    app = create(control, hosts=settings.allowed_hosts, internal=internal)
    inside.unlink(missing_ok=True)
    return (
        Server(
            app,
            tls=tls,
            host=settings.admin_host,
            port=settings.admin_port,
            timeout_graceful_shutdown=_GRACE,
        ),
        Server(app, uds=str(inside), timeout_graceful_shutdown=_GRACE),
    )


async def scrape(replica: Replica) -> Readings | None:
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
