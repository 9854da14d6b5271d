"""What the program asks others, seen by fakes and by its own readers: Kubernetes, and KEDA's words.

Discovery runs against the fake API server, which remembers every request: its verb, its group and
resource, and the label that it chooses by. Which ports it needs is seen by leaving one out.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

from fake_kubernetes import Asked, FakeApi

from serve.admin.keda.service import KedaCall as Question
from serve.triton.discovery.endpoints import Listing, read
from serve.triton.discovery.kubernetes import Cluster, EndpointSlices

_CANDIDATES = ("http", "grpc", "metrics", "admin", "keda")


class _Deaf:
    """Hears and does nothing."""

    def told(self, listing: Listing) -> None:
        """See `Listener`."""

    def well(self) -> None:
        """See `Listener`."""

    def failed(self, error: Exception) -> None:
        """See `Listener`."""


def discovery() -> Iterator[tuple[str, str, Any]]:
    """Rights that discovery needs, the label that it chooses by, and the ports that it wants."""
    for asked in asyncio.run(_asked()):
        group, resource, name = _resource(asked.path)
        verb = "watch" if asked.is_watch else "get" if name else "list"
        yield "asks", f"{verb} {resource}", group
        yield "word", "pool label", asked.query["labelSelector"]
    yield "word", "discovers kubernetes", "kubernetes"
    for port in _CANDIDATES:
        if read([_slice(*(one for one in _CANDIDATES if one != port))]).problems:
            yield "endpoint port", port, "needed"


def keda(asked: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    """Which of these entries of a trigger's metadata change the question, and how."""
    nothing = _question({})
    for name in asked:
        question = _question({name: "-"})
        if question != nothing:
            yield "keda", name, "pool" if question.pool != nothing.pool else "credential"


async def _asked() -> list[Asked]:
    async with FakeApi() as api:
        source = EndpointSlices(Cluster(api.url, "servegate"))
        running = asyncio.create_task(source.run(_Deaf()))
        await api.asked(2)  # a list, and a watch
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return list(api.requests)


def _resource(path: str) -> tuple[str, str, str]:
    parts = path.strip("/").split("/")  # apis, GROUP, VERSION, namespaces, NAME, RESOURCE, NAME
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[parts.index("namespaces") + 2 :]
    return group, rest[0], "/".join(rest[1:])


def _slice(*ports: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "one"},
        "addressType": "IPv4",
        "ports": [{"name": name, "port": 8000, "protocol": "TCP"} for name in ports],
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }


def _question(metadata: dict[str, str]) -> Question:
    request = SimpleNamespace(scalerMetadata=metadata, metricName="")
    context = SimpleNamespace(invocation_metadata=lambda: ())
    return Question.of(request, context)
