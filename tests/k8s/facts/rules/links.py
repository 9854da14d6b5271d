"""Who calls whom: URLs in settings, discovery, the rim, and the certificate."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from k8s.facts.manifests import Object, dig, each, label_of, mapping, name_of
from k8s.facts.rules.ports import owners, scheme
from k8s.facts.workloads import Container
from k8s.facts.world import World, rule

ADMIN, HTTP, GRPC, METRICS = "admin", "http", "grpc", "metrics"
_GATEWAY = (HTTP, GRPC, METRICS)
_ADMIN_URL = "SERVEGATE_ADMIN_URL"
# Flags and variables of commands that name one address, and which port it is.
_OF_COMMANDS = {
    "--admin-url": ADMIN,
    _ADMIN_URL: ADMIN,
    "--url": HTTP,
    "SERVEGATE_URL": HTTP,
    "--grpc-url": GRPC,
    "SERVEGATE_GRPC_URL": GRPC,
    "--metrics-url": METRICS,
    "SERVEGATE_METRICS_URL": METRICS,
}
_SUFFIXES = ("", ".svc", ".svc.cluster.local")


def addresses(world: World, one: Container) -> Iterator[tuple[str, str, str]]:
    """Every address that a container of ours is given: by what, its text, and which port it is."""
    variables = world.variables(one)
    given = {**variables, **dict(one.flags)}
    if world.command(one) == "control" and _ADMIN_URL in variables:
        yield _ADMIN_URL, variables[_ADMIN_URL], ADMIN  # for commands that people run in its pod
    for name, port in _OF_COMMANDS.items():
        if name in given and (name in dict(one.flags) or world.command(one) not in _PLANES):
            yield name, one.expanded(given[name]), port
    settings = world.settings(one)
    if settings is None:
        return
    if world.command(one) == "proxy" and settings.control:
        yield "SERVEGATE_CONTROL", settings.control, ADMIN
    if world.command(one) == "control":
        if len(settings.gateway) not in (0, 3):
            yield "SERVEGATE_GATEWAY", ",".join(settings.gateway), "three addresses"
        for url, port in zip(settings.gateway, _GATEWAY, strict=False):
            yield "SERVEGATE_GATEWAY", url, port


@rule
def needed(world: World) -> Iterator[str]:
    """An agent, and whatever else calls the control plane, is told where it is."""
    for one in world.ours("sync"):
        if not any(port == ADMIN for _, _, port in addresses(world, one)):
            yield f"{one} is not told where the control plane is"


@rule
def clients_trust(world: World) -> Iterator[str]:
    """Who calls over TLS and shows no certificate of its own is told whom to trust."""
    for one in world.ours():
        if world.command(one) in _PLANES:
            continue
        is_told = bool(world.variables(one).get("SERVEGATE_CACERT"))
        if any(text.startswith("https://") for _, text, _ in addresses(world, one)) != is_told:
            yield f"{one} is {'' if is_told else 'not '}told whom to trust, whatever it calls"


@rule
def urls_lead_to_services(world: World) -> Iterator[str]:
    """Every address names a Service of ours, its port, and the way that port speaks."""
    for one in world.ours():
        for by, text, port in addresses(world, one):
            url = urlsplit(text if "://" in text else f"grpc://{text}")
            found = service_of(world, one.pod.namespace, url.hostname or "")
            if found is None:
                yield f"{one} {by}={text}: there is no Service {url.hostname}"
                continue
            entry = world.port_of(found, url.port)
            if entry is None or entry.get("name") != port:
                yield f"{one} {by}={text}: the Service's port {url.port} is not its {port} port"
                continue
            if url.path not in ("", "/"):
                yield f"{one} {by}={text}: an address has no path"
            for owner in owners(world, found, port):
                spoken = scheme(world, owner).lower()
                if url.scheme not in (spoken, "grpc" if spoken == "http" else "grpcs"):
                    yield f"{one} {by}={text}: {owner} speaks {spoken} there"


@rule
def pods_are_where_settings_look(world: World) -> Iterator[str]:
    """`discover` asks Kubernetes, for the namespace in which the pools are."""
    for one in world.ours("control"):
        settings = world.settings(one)
        for text in settings.discover if settings else ():
            kind, _, where = text.partition("=")
            if kind != "kubernetes":
                yield f"{one} discovers '{text}', and the manifests mean Kubernetes"
            elif where.rpartition("/")[2] not in ("", one.pod.namespace):
                yield f"{one} discovers {text}, and the pools are in {one.pod.namespace}"


@rule
def rims_lead_to_services(world: World) -> Iterator[str]:
    """Ingresses and routes lead to ports of Services, HTTP to HTTP and gRPC to gRPC."""
    for one in world.manifests.of("HTTPRoute", "GRPCRoute"):
        where, backends = label_of(one), each(one, "spec.rules backendRefs")
        wanted = (GRPC,) if one["kind"] == "GRPCRoute" else (HTTP, ADMIN)
        if not backends:
            yield f"{where} leads nowhere"
        for backend in backends:
            yield from _leads(world, where, backend.get("name"), backend.get("port"), wanted)
        yield from _attached(world, one, where)
    for one in world.manifests.of("Ingress"):
        where, paths = label_of(one), each(one, "spec.rules http.paths")
        if not paths:
            yield f"{where} leads nowhere"
        for path in paths:
            service = mapping(dig(path, "backend.service"))
            port = mapping(service.get("port"))
            named = port.get("name", port.get("number"))
            yield from _leads(world, where, service.get("name"), named, (HTTP, ADMIN, GRPC))
            if not str(path.get("path", "")).startswith("/"):
                yield f"{where} has no path for {service.get('name')}"


def _leads(
    world: World, where: str, name: object, port: object, wanted: tuple[str, ...]
) -> Iterator[str]:
    service = world.service(str(name))
    entry = world.port_of(service, port) if service else None
    if service is None:
        yield f"{where} leads to Service/{name}, which is not there"
    elif entry is None or entry.get("name") not in wanted:
        yield f"{where} leads to port {port} of Service/{name}, which is none for it"
    elif (entry.get("name") == ADMIN) != where.endswith("-admin"):
        yield f"{where} leads to the {entry.get('name')} port of Service/{name}"


def _attached(world: World, route: Object, where: str) -> Iterator[str]:
    for parent in each(route, "spec.parentRefs"):
        gateway = world.manifests.named("Gateway", str(parent.get("name")))
        if gateway is None:
            continue  # it is the cluster's
        listeners = {one.get("name"): one for one in each(gateway, "spec.listeners")}
        listener = listeners.get(parent.get("sectionName"))
        hosts = dig(route, "spec.hostnames") or []
        if listener is None:
            yield f"{where} belongs to listener {parent.get('sectionName')}, which is not there"
        elif listener.get("hostname") not in hosts:
            yield f"{where} is for {', '.join(hosts)}, and its listener for {listener['hostname']}"


@rule
def certificates_have_the_names(world: World) -> Iterator[str]:
    for one in world.manifests.of("Certificate"):
        names = dig(one, "spec.dnsNames")
        for name in names or ():
            if _is_inside(name) and not any(_is_name_of(name, s) for s in world.services):
                yield f"Certificate/{name_of(one)} is for {name}, and no Service is called so"
        called = {host for c in world.ours() for host in _hosts(world, c)} | {"localhost"}
        for trigger in world.triggers:
            called.add(str(dig(trigger, "metadata.scalerAddress")).rpartition(":")[0])
        for host in called:
            if names and host not in names:
                yield f"Certificate/{name_of(one)} is not for {host}, which is called"
        for service in world.services:
            whole = {f"{name_of(service)}{end}" for end in _ends(service)}
            some = whole & set(names or ())
            if some and some != whole:
                yield f"Certificate/{name_of(one)} lacks {', '.join(sorted(whole - some))}"


def _is_inside(name: str) -> bool:
    """Whether a name is one of this cluster: others are the operator's, for load balancers."""
    return name != "localhost" and (name.count(".") < 2 or ".svc" in name)


def _hosts(world: World, one: Container) -> Iterator[str]:
    for _, text, _ in addresses(world, one):
        if text.startswith("https://") and (host := urlsplit(text).hostname):
            yield host


def _ends(service: Object) -> tuple[str, ...]:
    namespace = dig(service, "metadata.namespace")
    return ("", *(f".{namespace}{end}" for end in _SUFFIXES if end))


def _is_name_of(name: str, service: Object) -> bool:
    return any(name == f"{name_of(service)}{end}" for end in _ends(service))


def service_of(world: World, namespace: str, host: str) -> Object | None:
    first, _, rest = host.partition(".")
    if rest not in ("", *(f"{namespace}{end}" for end in _SUFFIXES)):
        return None
    return world.service(first)


_PLANES = ("proxy", "control")
