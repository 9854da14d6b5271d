"""Ports and probes: what listens, what a Service leads to, what the kubelet asks.

A port of ours is called as its setting is, without `_port`; Triton's are called http, grpc and
metrics, because discovery looks for those names.
"""

from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import Object, dig, each, items, label_of, mapping, name_of
from k8s.facts.observed import Port
from k8s.facts.workloads import TRITON, Container
from k8s.facts.world import OURS, World, is_triton, rule

PLANES = ("proxy", "control")
TRITON_PORTS = {"http": ("--http-port", 8000), "grpc": ("--grpc-port", 8001)} | {
    "metrics": ("--metrics-port", 8002)
}
_HEALTH = {
    "livenessProbe": ("livez", "live"),
    "readinessProbe": ("readyz", "ready"),
    "startupProbe": ("livez", "live", "readyz", "ready"),
}
_TRITON_HEALTH = {f"/v2/health/{one}" for one in ("live", "ready")}


def listening(world: World, one: Container) -> dict[str, int]:
    if is_triton(one):
        asked = ((name, one.flag(flag), usual) for name, (flag, usual) in TRITON_PORTS.items())
        return {
            name: _number(given) if given is not None else usual for name, given, usual in asked
        }
    command = world.command(one)
    explained = world.explained(one)
    found = {}
    for fact in world.program.names("port", f"{command} ") if command in PLANES else ():
        port: Port = world.program.find("port", fact)
        setting = fact.split()[1]
        if isinstance(explained, str) or explained.sources[setting] == "default":
            number = port.number
        else:
            number = getattr(explained.settings, setting)
        if number:
            found[setting.removesuffix("_port")] = number
    return found


@rule
def ports_are_listened_on(world: World) -> Iterator[str]:
    for one in (*world.ours(*PLANES), *world.tritons()):
        heard, named = listening(world, one), one.ports
        for name in sorted(heard.keys() | named.keys()):
            if heard.get(name) != named.get(name):
                yield f"{one} names port {name} {named.get(name)}, and listens on {heard.get(name)}"
        for port in items(one.body.get("ports")):
            if port.get("protocol", "TCP") != "TCP":
                yield f"{one} says that port {port.get('name')} is {port['protocol']}"


@rule
def services_lead_to_ports(world: World) -> Iterator[str]:
    """A Service leads to pods, and to ports that they name, under the same name and number."""
    for service in world.services:
        name, pods = name_of(service), world.selected(service)
        if not pods:
            yield f"Service/{name} selects no pod: {dig(service, 'spec.selector')}"
        for port in each(service, "spec.ports"):
            target = port.get("targetPort", port.get("port"))
            for pod in pods:
                number = pod.listens_on(target)
                if number is None:
                    yield f"Service/{name} leads to port {target}, which {pod.where} does not name"
                elif port.get("port") != number:
                    yield f"Service/{name} has port {port.get('port')} for {number} of {pod.where}"
                elif pod.kind != "Job" and number != _of_name(pod.containers, port.get("name")):
                    yield f"Service/{name} calls port {number} of {pod.where} '{port.get('name')}'"
            if port.get("protocol", "TCP") != "TCP":
                yield f"Service/{name} says that port {port.get('name')} is {port['protocol']}"


@rule
def ports_can_be_called(world: World) -> Iterator[str]:
    """Every port of a plane or a Triton is a port of a Service, and so is one of a Job."""
    for one in world.containers:
        numbers = set(one.ports.values()) if one.image in (*OURS, TRITON) else set()
        heard = (one.flag("--listen") or "").rpartition(":")[2]
        numbers |= {int(heard)} if heard.isdigit() else set()
        behind = [service for service in world.services if one.pod in world.selected(service)]
        called = {port.get("port") for some in behind for port in each(some, "spec.ports")}
        for number in sorted(numbers - called):
            yield f"{one} listens on {number}, which no Service leads to"


@rule
def pools_can_be_discovered(world: World) -> Iterator[str]:
    """Triton's pods are behind one Service that discovery finds, with the ports that it wants."""
    key = world.program.find("word", "pool label")
    for pod in world.pods:
        if not any(is_triton(one) for one in pod.containers):
            continue
        behind = [one for one in world.services if pod in world.selected(one)]
        pools = [one for one in behind if key in mapping(dig(one, "metadata.labels"))]
        if len(pools) != 1:
            yield f"{pod.where} is behind {len(pools)} Services with the label {key}"
        for service in pools:
            name = name_of(service)
            pool = dig(service, "metadata.labels")[key]
            if pod.kind == "Deployment" and pod.where != f"Deployment/triton-{pool}":
                yield f"Service/{name} says that {pod.where} is the pool {pool}"
            if dig(service, "spec.clusterIP") != "None":
                yield f"Service/{name} is not headless: discovery needs the pods' own addresses"
            named = {str(port.get("name")) for port in each(service, "spec.ports")}
            if named != (looked := set(world.program.names("endpoint port"))):
                yield f"Service/{name} has the ports {named}, and discovery looks for {looked}"
    for service in world.services:
        is_headless = dig(service, "spec.clusterIP") == "None"
        if is_headless != (dig(service, "spec.publishNotReadyAddresses") is True):
            yield f"Service/{name_of(service)} hides pods that are not ready, or is not headless"


@rule
def probes_are_answered(world: World) -> Iterator[str]:
    """Every plane and every Triton is asked whether it lives and is ready, where it answers."""
    servers = [one for one in world.ours(*PLANES) if one.pod.kind != "Job"]
    for one in (*servers, *world.tritons()):
        for kind, ends in _HEALTH.items():
            probe = one.body.get(kind)
            if not isinstance(probe, dict):
                yield f"{one} has no {kind}"
                continue
            yield from _asked(world, one, kind, mapping(probe.get("httpGet")), ends)


@rule
def monitors_read_metrics(world: World) -> Iterator[str]:
    for monitor in world.manifests.of("PodMonitor"):
        where, ends = label_of(monitor), each(monitor, "spec.podMetricsEndpoints")
        pods = [pod for pod in world.pods if pod.matches(mapping(dig(monitor, "spec.selector")))]
        if not pods:
            yield f"{where} selects nothing: {dig(monitor, 'spec.selector')}"
        if not ends:
            yield f"{where} reads no port"
        for end in ends:
            yield from _read(world, where, pods, end)


def _read(world: World, where: str, pods: list[Any], end: dict[str, Any]) -> Iterator[str]:
    port, path = end.get("port"), end.get("path", "/metrics")
    for pod in pods:
        owner = next((one for one in pod.containers if port in one.ports), None)
        if owner is None:
            yield f"{where} reads port {port}, which {pod.where} does not name"
        elif is_triton(owner):
            if (port, path) != ("metrics", "/metrics"):
                yield f"{where} reads {path} on port {port} of Triton: that is /metrics on metrics"
        else:
            fact = f"{world.command(owner)} {port}_port {path}"
            if path != "/metrics" or world.program.find("path", fact) is None:
                yield f"{where} reads {path}, which does not answer on port {port} of {owner}"
            if end.get("scheme", "http").upper() != scheme(world, owner):
                yield f"{where} reads {end.get('scheme')}, which {owner} does not speak"


def scheme(world: World, one: Container) -> str:
    """HTTP or HTTPS, by a plane's settings; Triton's is HTTP."""
    settings = None if is_triton(one) else world.settings(one)
    return "HTTPS" if settings and settings.tls_cert else "HTTP"


def _asked(
    world: World, one: Container, kind: str, get: dict[str, Any], ends: tuple[str, ...]
) -> Iterator[str]:
    port, path = get.get("port"), str(get.get("path", "/"))
    name = next((name for name, number in one.ports.items() if port in (name, number)), None)
    if name is None:
        yield f"{one} {kind} asks port {port}, which the container does not name"
    elif is_triton(one):
        if name != "http" or path not in _TRITON_HEALTH:
            yield f"{one} {kind} asks {path} on port {port}: Triton does not answer that there"
    elif world.program.find("path", f"{world.command(one)} {name}_port {path}") is None:
        yield f"{one} {kind} asks {path} on port {port}, and nobody answers that there"
    if path.rpartition("/")[2] not in ends:
        yield f"{one} {kind} asks {path}, which tells something else"
    if str(get.get("scheme", "HTTP")) != scheme(world, one):
        yield f"{one} {kind} asks over {get.get('scheme')}, and it speaks {scheme(world, one)}"


def owners(world: World, service: Object, port: str) -> Iterator[Container]:
    for pod in world.selected(service):
        yield from (one for one in pod.containers if port in one.ports)


def _of_name(containers: list[Container], name: object) -> int | None:
    return next((one.ports[str(name)] for one in containers if name in one.ports), None)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1
