"""What a rendering has to be as a whole: one namespace, selectors that select, names in use."""

from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import dig, each, label_of, mapping, name_of
from k8s.facts.rules.ports import owners, scheme
from k8s.facts.world import World, rule

_OF_CLUSTERS = {
    *("Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "RuntimeClass", "Image"),
    *("StorageClass", "DeviceClass", "GatewayClass", "PersistentVolume", "PrometheusAdapter"),
    *("ClusterIssuer", "Node"),
}
_PROTOCOLS = {  # in clear, and over TLS
    "http": ("http", "https"),
    "admin": ("http", "https"),
    "metrics": ("http", "https"),
    "grpc": ("kubernetes.io/h2c", None),  # there is no word for gRPC over TLS
    "keda": ("kubernetes.io/h2c", None),
}


@rule
def there_is_one_namespace(world: World) -> Iterator[str]:
    """Everything is in the one namespace that is made for it, as addresses and policies assume."""
    made = [name_of(one) for one in world.manifests.of("Namespace")]
    for one in world.manifests.objects:
        if one.get("kind") in _OF_CLUSTERS:
            continue
        namespace = dig(one, "metadata.namespace")
        if namespace not in made:
            yield f"{label_of(one)} is in {namespace}, and made is {made}"


@rule
def selectors_select(world: World) -> Iterator[str]:
    for one in world.manifests.of("Deployment"):
        selector = mapping(dig(one, "spec.selector"))
        for pod in world.pods:
            if (pod.where == label_of(one)) != pod.matches(selector):
                yield f"{label_of(one)} selects {selector}, and {pod.where} is {dict(pod.labels)}"
    for one in world.manifests.of("PodDisruptionBudget"):
        selector = mapping(dig(one, "spec.selector"))
        chosen = {pod.where for pod in world.pods if pod.matches(selector)}
        if len(chosen) != 1:
            yield f"{label_of(one)} is about {sorted(chosen)}"
    for pod in world.pods:
        for spread in each(pod.spec, "topologySpreadConstraints"):
            if not pod.matches(mapping(spread.get("labelSelector"))):
                yield f"{pod.where} is spread over {spread.get('labelSelector')}, which it is not"


@rule
def selectors_say_both(world: World) -> Iterator[str]:
    """A selector that says that pods are ours says which, and the other way round."""
    name, part = "app.kubernetes.io/name", "app.kubernetes.io/component"
    ours = world.program.find("word", name)
    key = str(world.program.find("word", "pool label"))
    for one in world.manifests.objects:
        is_kserve = "serving.kserve.io/inferenceservice" in mapping(dig(one, "spec.selector"))
        pool = None if is_kserve else mapping(dig(one, "metadata.labels")).get(key)
        for labels, is_more in _selectors(one):
            if labels.get(name) == ours and part not in labels and not is_more:
                yield f"{label_of(one)} selects all of ours: {labels}"
            if not labels:
                yield f"{label_of(one)} has a selector that selects everything"
            if pool and labels.get(key) != pool:
                yield f"{label_of(one)} is of pool {pool}, and selects {labels}"
            if part in labels and name not in labels:
                yield f"{label_of(one)} selects {labels}, whosever they are"


def _selectors(value: Any, key: str = "") -> Iterator[tuple[dict[str, Any], bool]]:
    """Every selector by labels, and whether expressions stand beside it."""
    if isinstance(value, dict):
        if key == "selector" and not value.keys() & {"matchLabels", "matchExpressions"}:
            yield value, False
        for inner, held in value.items():
            if inner == "matchLabels" and isinstance(held, dict):
                yield held, bool(value.get("matchExpressions"))
            yield from _selectors(held, inner)
    elif isinstance(value, list):
        for held in value:
            yield from _selectors(held)


@rule
def services_say_what_is_spoken(world: World) -> Iterator[str]:
    """`appProtocol` says whether a port speaks HTTP or gRPC, in clear or not."""
    for service in world.services:
        for port in each(service, "spec.ports"):
            name, said = str(port.get("name")), port.get("appProtocol")
            if name not in _PROTOCOLS or (name == "metrics" and said is None):
                continue
            for owner in owners(world, service, name):
                wanted = _PROTOCOLS[name][scheme(world, owner) == "HTTPS"]
                if said != wanted:
                    yield f"Service/{name_of(service)} says that {name} is {said}: it is {wanted}"


@rule
def services_are_called_as_pods_say(world: World) -> Iterator[str]:
    """A Service without an address of its own goes by the name that its pods know."""
    for service in world.services:
        if dig(service, "spec.clusterIP") != "None":
            continue
        name, labels = name_of(service), mapping(dig(service, "metadata.labels"))
        is_pool = world.program.find("word", "pool label") in labels
        for pod in world.selected(service):
            if pod.kind == "Job" and pod.spec.get("subdomain") != name:
                yield f"Service/{name} is for {pod.where}, whose subdomain is other"
            if is_pool and pod.kind == "Deployment" and pod.where != f"Deployment/{name}":
                yield f"Service/{name} is for {pod.where}: a pool's two objects are called the same"


@rule
def claims_are_there(world: World) -> Iterator[str]:
    made = {name_of(one) for one in world.manifests.of("PersistentVolumeClaim")}
    for pod in world.pods:
        for volume in each(pod.spec, "volumes"):
            claim = dig(volume, "persistentVolumeClaim.claimName")
            if "persistentVolumeClaim" in volume and claim not in made:
                yield f"{pod.where} uses the claim {claim}, which is not made"


@rule
def credentials_are_there(world: World) -> Iterator[str]:
    """What a TriggerAuthentication takes is an entry of a Secret, and a trigger uses it."""
    made = {str(dig(one, "spec.secretName")) for one in world.manifests.of("Certificate")}
    used = {str(dig(trigger, "authenticationRef.name")) for trigger in world.triggers}
    there = {name_of(one) for one in world.manifests.of("TriggerAuthentication")}
    for name in used - {"None"} - there:
        yield f"a trigger uses TriggerAuthentication/{name}, which is not there"
    for one in world.manifests.of("TriggerAuthentication"):
        if name_of(one) not in used:
            yield f"{label_of(one)} is used by no trigger"
        taken = each(one, "spec.secretTargetRef")
        if not taken:
            yield f"{label_of(one)} takes nothing"
        for entry in taken:
            name, key, parameter = (str(entry.get(of)) for of in ("name", "key", "parameter"))
            is_made = name in made and key in _OF_KEDA.values()
            if not is_made and world.program.find("entry", f"{name} {key}") is None:
                yield f"{label_of(one)} takes {key} of Secret/{name}, which nobody makes"
            read = world.program.find("keda", parameter)
            if read is None and _OF_KEDA.get(parameter) != key:
                yield f"{label_of(one)} hands {key} on as {parameter}"


@rule
def runtimes_fit(world: World) -> Iterator[str]:
    """An InferenceService has a runtime, which takes its format and speaks its protocol."""
    for one in world.manifests.of("InferenceService"):
        where, model = label_of(one), mapping(dig(one, "spec.predictor.model"))
        runtime = world.manifests.named("ServingRuntime", str(model.get("runtime")))
        if runtime is None:
            yield f"{where} runs on {model.get('runtime')}, which is not there"
            continue
        if model.get("modelFormat") not in each(runtime, "spec.supportedModelFormats"):
            yield f"{where} has the format {model.get('modelFormat')}, which its runtime has not"
        if model.get("protocolVersion") not in (dig(runtime, "spec.protocolVersions") or []):
            yield f"{where} speaks {model.get('protocolVersion')}, which its runtime does not"


_OF_KEDA = {"caCert": "ca.crt", "tlsClientCert": "tls.crt", "tlsClientKey": "tls.key"}
