"""Autoscalers: what they scale, by which number of ours, and how they ask for it."""

from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import Object, dig, each, label_of, mapping, name_of
from k8s.facts.rules.links import service_of
from k8s.facts.world import World, rule


@rule
def autoscalers_scale_pools(world: World) -> Iterator[str]:
    for one in world.manifests.of("HorizontalPodAutoscaler", "ScaledObject"):
        where, target = label_of(one), mapping(dig(one, "spec.scaleTargetRef"))
        usual = "Deployment" if one["kind"] == "ScaledObject" else ""
        found = world.manifests.named(str(target.get("kind", usual)), str(target.get("name", "")))
        if found is None:
            yield f"{where} scales {target.get('name')}, which is not there"
            continue
        if dig(found, "spec.replicas") is not None:
            yield f"{where} scales {name_of(found)}, which has a number of replicas of its own"
        pool = _pool(world, found)
        for metric in each(one, "spec.metrics"):
            if metric.get("type") == "External":
                yield from _told(world, where, mapping(metric.get("external")), pool)
        for trigger in each(one, "spec.triggers"):
            yield from _triggered(world, where, one, trigger, pool)


def _told(world: World, where: str, external: dict[str, Any], pool: str) -> Iterator[str]:
    metric = str(dig(external, "metric.name"))
    labels = world.program.find("metric", metric)
    if labels is None:
        yield f"{where} scales by {metric}, which the program does not tell"
    chosen = mapping(dig(external, "metric.selector.matchLabels"))
    for key, value in chosen.items():
        if key not in (labels or ()) or value != pool:
            yield f"{where} scales {pool} by {metric} of {key} {value}"
    if not chosen:
        yield f"{where} scales by {metric} of every pool"
    target = mapping(external.get("target"))
    if (target.get("type"), str(target.get("averageValue"))) != ("AverageValue", "1"):
        yield f"{where} has the target {target}: a hint is one replica per replica"


def _triggered(
    world: World, where: str, scaled: Object, trigger: dict[str, Any], pool: str
) -> Iterator[str]:
    metadata = mapping(trigger.get("metadata"))
    if trigger.get("type") != "external-push":
        yield f"{where} has a trigger {trigger.get('type')}: the program is asked as external-push"
        return
    if trigger.get("metricType") != "AverageValue":
        yield f"{where} has metricType {trigger.get('metricType')}: a hint is a number of replicas"
    host, _, port = str(metadata.get("scalerAddress", "")).rpartition(":")
    service = service_of(world, str(dig(scaled, "metadata.namespace") or ""), host)
    entry = world.port_of(service, int(port) if port.isdigit() else 0) if service else None
    if entry is None or entry.get("name") != "keda":
        yield f"{where} asks {metadata.get('scalerAddress')}: no keda port of a Service"
    for key, value in metadata.items():
        read = world.program.find("keda", key)
        if key != "scalerAddress" and read is None:
            yield f"{where} tells {key}, which the program does not read"
        if read == "pool" and value != pool:
            yield f"{where} asks for the pool {value}, and scales {pool}"
    if "pool" not in [world.program.find("keda", key) for key in metadata]:
        yield f"{where} names no pool"
    yield from _environment(world, where, scaled, metadata.get("keyFromEnv"))


def _environment(world: World, where: str, scaled: Object, name: object) -> Iterator[str]:
    target = str(dig(scaled, "spec.scaleTargetRef.name"))
    source = dig(scaled, "spec.scaleTargetRef.envSourceContainerName")
    chosen = []
    for pod in (one for one in world.pods if one.where == f"Deployment/{target}"):
        wanted = source or each(pod.spec, "containers")[0].get("name")  # as KEDA: the first
        chosen += [one for one in pod.containers if one.name == wanted]
    if source is not None and not chosen:
        yield f"{where} reads the environment of container {source}, which is not there"
    if name is not None and not any(name in c.variables for c in chosen):
        yield f"{where} takes its key of {name}, which no such container has"


def _pool(world: World, deployment: Object) -> str:
    """The pool that the pods of a Deployment are, by the Service in front of them."""
    key = world.program.find("word", "pool label")
    for service in world.services:
        for pod in world.selected(service):
            pool = mapping(dig(service, "metadata.labels")).get(key)
            if pool and pod.where == f"Deployment/{name_of(deployment)}":
                return str(pool)
    return ""
