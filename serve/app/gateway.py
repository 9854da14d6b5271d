"""The gateway as the control plane calls it for people: where it is, and what it is shown."""

from collections.abc import Callable
from urllib.parse import urlsplit

from serve.app.tls import client_context
from serve.control.gateway import GatewayAddress, GatewayClient
from serve.settings import Settings, keys_are_required


def gateway_of(settings: Settings, words: str, *, guarded: Callable[[], bool]) -> GatewayClient:
    """The data plane of these settings; `words` are the control plane's own key for it."""
    http, grpc, metrics = settings.gateway_urls
    secure = grpc.startswith("https://")
    scraped = metrics if metrics.endswith("/metrics") else f"{metrics}/metrics"
    place = GatewayAddress(http, grpc if secure else urlsplit(grpc).netloc, scraped)

    def key() -> str:
        return words if keys_are_required(settings, guarded()) else ""

    return GatewayClient(place, key=key, trust=client_context(settings) if secure else None)
