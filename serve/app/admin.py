"""The admin listeners of a control plane: the FastAPI application, on its port and inside.

Inside is a Unix socket in the state folder. It is for our own processes on the same machine, which
so need no certificate to trust, and none to show.
"""

import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

from serve.admin.api import disagreements
from serve.admin.api.application import create
from serve.admin.api.context import AdminContext
from serve.admin.api.membership import membership_router
from serve.admin.api.sync import sync_router
from serve.admin.api.waiting_models import waking_router
from serve.admin.web import site
from serve.app.http_server import HttpServer
from serve.app.ports import inside, listener
from serve.control.deliveries.agents import AgentDelivery
from serve.control.membership import Membership
from serve.settings import Settings

_GRACE = 2  # seconds for requests in flight when the process stops


def admin_servers(
    settings: Settings,
    control: AdminContext,
    *,
    membership: Membership,
    wake: Callable[[Iterable[str]], None],
    agents: AgentDelivery | None,
    tls: ssl.SSLContext | None,
    path: Path,
) -> tuple[tuple[HttpServer, socket.socket], ...]:
    """The servers and where they listen: on the port, and on a Unix socket with this path."""
    internal = [waking_router(wake), disagreements.router]
    if not settings.discover:  # whose list would be another
        internal.append(membership_router(membership))
    if agents:
        internal.append(sync_router(agents, control.storage))
    beside = [*site.routers(control.features), *internal]
    app = create(control, hosts=settings.allowed_hosts, beside=beside, refusal=site.refusal)
    outside = listener(settings.admin_host, settings.admin_port)
    return (
        (HttpServer(app, tls=tls, timeout_graceful_shutdown=_GRACE), outside),
        (HttpServer(app, timeout_graceful_shutdown=_GRACE), inside(path)),
    )
