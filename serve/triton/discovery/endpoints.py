"""Endpoints: the Tritons that EndpointSlices name, as plain values.

A slice is a part of the list of a Service's pods; what it says is read as the API documents it
(discovery.k8s.io/v1, kubernetes.io/docs/concepts/services-networking/endpoint-slices):

| in a slice                        | here                                                         |
|-----------------------------------|--------------------------------------------------------------|
| label `servegate.dev/pool`        | the pool; Kubernetes copies it from the Service              |
| ports `http`, `grpc`, `metrics`   | the three ports, for all endpoints of the slice              |
| `addresses`                       | the first one: they are interchangeable                      |
| `targetRef` of a Pod              | the name; else `hostname`, else the address                  |
| no `ready`                        | it is ready                                                  |
| no `serving`                      | it serves if it is ready                                     |
| no `terminating`                  | it is not terminating                                        |
| a pod in two slices of a Service  | one replica, and the slice that was told last is right       |
| a pod in an IPv4 and an IPv6 slice| one replica, at its IPv4 address                             |

A Service that publishes addresses that are not ready calls each of its endpoints ready; then only
`serving` tells the pod's readiness.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serve.core.replicas import Replica

POOL = "servegate.dev/pool"  # the label
_SERVICE = "kubernetes.io/service-name"
_PORTS = ("http", "grpc", "metrics")
_FAMILIES = {"IPv4": 0, "IPv6": 1, "FQDN": 2}  # the first that a pod has is where it is called
_HOST = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Triton, and what is said of it. `zone` and `node` are empty where that is not said."""

    replica: Replica
    zone: str = ""
    node: str = ""
    is_ready: bool = True
    is_serving: bool = True
    is_terminating: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """All endpoints by name, and what could not be read, in sentences."""

    endpoints: tuple[Endpoint, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Named:
    """An endpoint as one slice has it."""

    endpoint: Endpoint
    service: str
    family: int


def read(slices: Iterable[Any]) -> Listing:
    """The endpoints of all these slices, of which the last ones are the newest."""
    named: dict[str, list[_Named]] = {}
    problems: list[str] = []
    for one in slices:
        for found in _slice(one, problems):
            named.setdefault(found.endpoint.replica.name, []).append(found)
    endpoints = tuple(_joined(named[name], problems) for name in sorted(named))
    return Listing(endpoints, tuple(dict.fromkeys(problems)))


def _slice(one: Any, problems: list[str]) -> list[_Named]:
    try:
        metadata = one["metadata"]
        labels: Mapping[str, str] = metadata.get("labels") or {}
        service = str(labels.get(_SERVICE) or metadata["name"])
        endpoints = list(one.get("endpoints") or ())
        family = str(one["addressType"])
        ports = _ports(one.get("ports") or ())
    except _MALFORMED as error:
        problems.append(f"an EndpointSlice cannot be read: {error!r}")
        return []
    missing = [name for name in _PORTS if name not in ports]
    if endpoints and missing:  # without pods there are no ports either
        problems.append(
            f"the pods of Service {service} are ignored: it has no port {', '.join(missing)}"
        )
        return []
    found = []
    for entry in endpoints:
        try:
            endpoint = _endpoint(entry, family, ports, str(labels.get(POOL) or "default"))
            found.append(_Named(endpoint, service, _FAMILIES[family]))
        except _MALFORMED as error:
            problems.append(f"an endpoint of Service {service} cannot be read: {error!r}")
    return found


def _ports(ports: Iterable[Any]) -> dict[str, int]:
    """By name; one without a number is all ports, which is none of ours."""
    return {
        str(one["name"]): one["port"]
        for one in ports
        if type(one.get("port")) is int
        and 0 < one["port"] < 65536
        and one.get("name")
        and (one.get("protocol") or "TCP") == "TCP"
    }


def _endpoint(entry: Any, family: str, ports: Mapping[str, int], pool: str) -> Endpoint:
    host = _host(str(entry["addresses"][0]), family)
    target = entry.get("targetRef") or {}
    pod = target.get("name") if target.get("kind") == "Pod" else None
    name = str(pod or entry.get("hostname") or host)
    said = entry.get("conditions") or {}
    ready = said.get("ready")
    is_ready = True if ready is None else bool(ready)
    serving = said.get("serving")
    return Endpoint(
        Replica(name, host, ports["http"], ports["grpc"], ports["metrics"], pool),
        zone=str(entry.get("zone") or ""),
        node=str(entry.get("nodeName") or ""),
        is_ready=is_ready,
        is_serving=is_ready if serving is None else bool(serving),
        is_terminating=bool(said.get("terminating")),
    )


def _host(address: str, family: str) -> str:
    """The address in the one form in which it is written; `ValueError` for none of this family."""
    if family == "FQDN":
        if not _HOST.match(address):
            raise ValueError(f"{address!r} is not a host name")
        return address.lower()
    found = ipaddress.ip_address(address)
    if f"IPv{found.version}" != family or "%" in address:
        raise ValueError(f"{address!r} is not an {family} address")
    return str(found)


def _joined(named: list[_Named], problems: list[str]) -> Endpoint:
    """What all slices say of one name together."""
    services = sorted({one.service for one in named})
    pools = {one.service: one.endpoint.replica.pool for one in named}
    service = services[0]
    if len(set(pools.values())) > 1:
        name = named[0].endpoint.replica.name
        told = ", ".join(f"{one} (pool {pools[one]})" for one in services)
        problems.append(f"{name} is in several pools, and is used in {pools[service]}: {told}")
    newest = {one.family: one.endpoint for one in named if one.service == service}
    ends = any(one.is_terminating for one in newest.values())  # no pod takes that back
    return replace(newest[min(newest)], is_terminating=ends)
