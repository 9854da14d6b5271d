"""What may reach what: NetworkPolicies against the calls that the program makes.

Kubernetes adds policies up: a call gets through if its sender has no policy for what goes out, or
one that allows it, and its receiver likewise for what comes in. Who calls whom follows from what
each container runs and where its settings send it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from k8s.facts.manifests import Object, dig, each, label_of, mapping
from k8s.facts.rules.links import addresses
from k8s.facts.rules.ports import listening
from k8s.facts.workloads import Pod
from k8s.facts.world import World, rule

# What is outside, and reached by its port alone.
OUTSIDE = {
    53: "DNS",
    443: "the Kubernetes API, an object store",
    6443: "the Kubernetes API",
    5432: "PostgreSQL",
    **dict.fromkeys((80, 8080, 987, 988), "GKE's metadata server"),
}
_GATEWAY_TO_TRITON = ("http", "grpc")
_CONTROL_TO_TRITON = ("http", "grpc", "metrics")  # loads, contracts, counters


@dataclass(frozen=True, slots=True)
class Call:
    caller: Pod
    callee: Pod
    port: int
    why: str


def calls(world: World) -> Iterator[Call]:
    tritons = [one for one in world.tritons() if one.pod.kind in ("Deployment", "ServingRuntime")]
    for one in world.ours():
        ports = {"proxy": _GATEWAY_TO_TRITON, "control": _CONTROL_TO_TRITON}
        for triton in tritons:
            for port in ports.get(world.command(one), ()):
                if (number := listening(world, triton).get(port)) is not None:
                    yield Call(one.pod, triton.pod, number, f"{world.command(one)} calls Triton")
        heard = (one.flag("--listen") or "").rpartition(":")[2]
        if heard.isdigit():
            yield Call(one.pod, one.pod, int(heard), "workers call their master")
        for by, text, _ in addresses(world, one):
            host, _, rest = text.partition("://")[2].partition(":")
            service = world.service((host or text.partition(":")[0]).partition(".")[0])
            digits = rest.partition("/")[0]
            for pod in world.selected(service) if service is not None else ():
                number = pod.listens_on(int(digits)) if digits.isdigit() else None
                if number is not None:
                    yield Call(one.pod, pod, number, f"{by} of {one.name}")


@rule
def calls_get_through(world: World) -> Iterator[str]:
    policies = tuple(world.manifests.of("NetworkPolicy"))
    for one in calls(world):
        text = f"{one.caller.where} may not call {one.callee.where} on port {one.port} ({one.why})"
        if not _may(policies, "Egress", one.callee, one.caller, one.port):
            yield f"{text}: no egress"
        if not _may(policies, "Ingress", one.caller, one.callee, one.port):
            yield f"{text}: no ingress"


@rule
def outside_is_reached(world: World) -> Iterator[str]:
    """Control reaches the Kubernetes API, its database and its storage; everybody reaches DNS."""
    policies = tuple(world.manifests.of("NetworkPolicy"))
    for one in world.ours("control", "proxy", "sync"):
        ports = {53} | ({443, 6443, 5432} if world.command(one) == "control" else set())
        if world.command(one) == "sync" and (one.flag("--storage") or "").strip():
            ports |= {443}
        for port in sorted(ports):
            if not _may(policies, "Egress", None, one.pod, port):
                yield f"{one} does not reach port {port}: {OUTSIDE[port]}"


@rule
def others_get_in(world: World) -> Iterator[str]:
    """Callers, the rim, Prometheus and KEDA reach the ports that are there for them."""
    policies = tuple(world.manifests.of("NetworkPolicy"))
    for pod, port, who in _callers(world):
        number = pod.listens_on(port)
        if number is not None and not _may(policies, "Ingress", who, pod, number):
            name = who.where if who else "another namespace"
            yield f"{pod.where} may not be called on {port} from {name}: no ingress"


@rule
def nothing_else_gets_in(world: World) -> Iterator[str]:
    """What no policy allows is refused, in both ways, to every pod."""
    for kind in ("Ingress", "Egress"):
        denying = [
            one
            for one in world.manifests.of("NetworkPolicy")
            if dig(one, "spec.podSelector") == {} and kind in (dig(one, "spec.policyTypes") or [])
        ]
        if not denying:
            yield f"no policy refuses {kind} to every pod"


def _callers(world: World) -> Iterator[tuple[Pod, object, Pod | None]]:
    """Which pod is called on which port, and by whom: None is somewhere outside.

    A Gateway of ours may be in this namespace or in another one.
    """
    rims = [None, *(one for one in world.everybody if one.kind == "Gateway")]
    yield from ((one.pod, port, None) for one in world.ours("proxy") for port in ("http", "grpc"))
    for one in world.manifests.of("PodMonitor"):
        ends = each(one, "spec.podMetricsEndpoints")
        pods = [pod for pod in world.pods if pod.matches(mapping(dig(one, "spec.selector")))]
        yield from ((pod, end.get("port"), None) for pod in pods for end in ends)
    if world.triggers:
        yield from ((one.pod, "keda", None) for one in world.ours("control"))
    for one in world.manifests.of("HTTPRoute", "GRPCRoute"):
        for backend in each(one, "spec.rules backendRefs"):
            for pod in _behind(world, backend.get("name")):
                yield from ((pod, backend.get("port"), who) for who in rims)
    for one in world.manifests.of("Ingress"):
        for path in each(one, "spec.rules http.paths"):
            service = mapping(dig(path, "backend.service"))
            for pod in _behind(world, service.get("name")):
                yield pod, dig(service, "port.name"), None


def _behind(world: World, name: object) -> tuple[Pod, ...]:
    service = world.service(str(name))
    return world.selected(service) if service else ()


@rule
def policies_select_pods(world: World) -> Iterator[str]:
    """A policy is about pods that there are, and names ports that they or their peers have."""
    for policy in world.manifests.of("NetworkPolicy"):
        where, selector = label_of(policy), mapping(dig(policy, "spec.podSelector"))
        pods = [one for one in world.everybody if one.matches(selector)]
        if not pods:
            yield f"{where} selects no pod: {dig(policy, 'spec.podSelector')}"
        kinds = dig(policy, "spec.policyTypes") or []
        if not kinds or set(kinds) - {"Ingress", "Egress"}:
            yield f"{where} is for {kinds}"
        for kind, side in (("Ingress", "from"), ("Egress", "to")):
            rules = each(policy, f"spec.{kind.lower()}")
            if rules and kind not in kinds:
                yield f"{where} has rules for {kind}, and is not for that"
            for one in rules:
                yield from _sound(world, f"{where} {kind}", kind, one, pods, each(one, side))


def _sound(
    world: World, where: str, kind: str, one: Object, pods: list[Pod], peers: list[Any]
) -> Iterator[str]:
    inside = [peer for peer in peers if "podSelector" in peer and "namespaceSelector" not in peer]
    for peer in inside:
        if not any(pod.matches(mapping(peer["podSelector"])) for pod in world.everybody):
            yield f"{where} names pods that are not there: {peer['podSelector']}"
    for peer in peers:
        if not peer.keys() & {"podSelector", "namespaceSelector", "ipBlock"}:
            yield f"{where} has a peer without a selector"
    ports, is_ours = each(one, "ports"), any(pod.kind != "Gateway" for pod in pods)
    if kind == "Ingress" and not peers and is_ours:
        yield f"{where} lets everybody in"
    if not ports and is_ours:
        yield f"{where} opens every port"
    callees = pods if kind == "Ingress" else [p for p in world.pods if _is_peer(peers, p)]
    for entry in ports:
        port = entry.get("port")
        is_inside = kind == "Ingress" or (inside and len(inside) == len(peers))
        if is_inside and not (callees and all(pod.listens_on(port) for pod in callees)):
            yield f"{where} opens port {port}, which nobody there listens on"
        if not is_inside and port not in OUTSIDE:
            yield f"{where} opens port {port} to the outside"
        protocol = entry.get("protocol", "TCP")
        if protocol != "TCP" and (protocol, port) != ("UDP", 53):
            yield f"{where} opens port {port} for {protocol}"


def _may(policies: Iterable[Object], kind: str, other: Pod | None, own: Pod, port: int) -> bool:
    """Whether the policies of `own` let it through; `other` None is somewhere outside."""
    about = [
        one
        for one in policies
        if own.matches(mapping(dig(one, "spec.podSelector")))
        and kind in (dig(one, "spec.policyTypes") or [])
    ]
    side = "to" if kind == "Egress" else "from"
    callee = other if kind == "Egress" else own
    for policy in about:
        for one in each(policy, f"spec.{kind.lower()}"):
            peers = each(one, side)
            is_peer = not peers or (_is_outside(peers) if other is None else _is_peer(peers, other))
            if is_peer and _has_port(one, port, callee):
                return True
    return not about


def _has_port(one: Object, port: int, callee: Pod | None) -> bool:
    for entry in each(one, "ports"):
        named = callee.listens_on(entry.get("port")) if callee else None
        protocol = entry.get("protocol", "TCP")
        if port in (entry.get("port"), named) and protocol == ("UDP" if port == 53 else "TCP"):
            return True
    return not one.get("ports")


def _is_peer(peers: list[Any], pod: Pod) -> bool:
    own = {"kubernetes.io/metadata.name": pod.namespace}
    space = Pod("", "", "", own, {})
    for peer in peers:
        if "ipBlock" in peer:
            continue
        in_space = space.matches(peer["namespaceSelector"]) if "namespaceSelector" in peer else True
        chosen = pod.matches(peer["podSelector"]) if "podSelector" in peer else True
        if peer.keys() & {"podSelector", "namespaceSelector"} and in_space and chosen:
            return True
    return False


def _is_outside(peers: list[Any]) -> bool:
    return any("ipBlock" in peer or "namespaceSelector" in peer for peer in peers)
