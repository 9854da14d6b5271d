"""EndpointSlices as Kubernetes writes them, for tests of discovery."""

from collections.abc import Mapping, Sequence
from typing import Any

NAMESPACE = "servegate"
PORTS: Mapping[str, int] = {"http": 8000, "grpc": 8001, "metrics": 8002}


def pod(
    name: str,
    host: str = "10.0.0.1",
    *,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    zone: str = "",
) -> dict[str, Any]:
    """The endpoint of a pod; what is None is not said, as older clusters do not say it."""
    said = {"ready": ready, "serving": serving, "terminating": terminating}
    found: dict[str, Any] = {
        "addresses": [host],
        "conditions": {word: value for word, value in said.items() if value is not None},
        "targetRef": {"kind": "Pod", "name": name, "namespace": NAMESPACE},
    }
    return found | ({"zone": zone} if zone else {})


def endpoint_slice(
    *endpoints: Mapping[str, Any],
    service: str = "",
    pool: str = "default",
    family: str = "IPv4",
    ports: Mapping[str, int] = PORTS,
    name: str = "",
    version: int = 1,
) -> dict[str, Any]:
    """A slice of a pool's Service, which is called after the pool if no other name is given."""
    service = service or f"triton-{pool}"
    listed: Sequence[Mapping[str, Any]] = [
        {"name": word, "port": port, "protocol": "TCP"} for word, port in ports.items()
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name or f"{service}-x7k2p",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service, "servegate.dev/pool": pool},
            "resourceVersion": str(version),
        },
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": listed,
    }
