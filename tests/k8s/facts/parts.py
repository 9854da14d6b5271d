"""Whole parts that a manifest may not lack: probes, ports, agents, rules of policies."""

from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import Object, Steps, name_of, pattern
from k8s.facts.mutations import Mutant, without
from k8s.facts.world import World

# Below these paths a part is a whole.
PARTS = (
    "Deployment/* *.livenessProbe",
    "Deployment/* *.readinessProbe",
    "Deployment/* *.lifecycle",
    "Deployment/* *ontainers[*].ports[*]",
    "Deployment/* *ontainers[*].securityContext",
    "Deployment/* spec.template.spec.securityContext",
    "Deployment/* *.volumes[*]",
    "Service/* spec.ports[*]",
    "NetworkPolicy/servegate-control* spec.ingress[*]",
    "NetworkPolicy/servegate-control* spec.ingress[*].from[*]",
    "NetworkPolicy/servegate-gateway spec.ingress[*]",
    "NetworkPolicy/servegate-gateway spec.ingress[*].from[*]",
    "NetworkPolicy/servegate-load spec.ingress[*]",
    "NetworkPolicy/triton spec.ingress[*]",
    "NetworkPolicy/servegate-* spec.egress[*]",
    "NetworkPolicy/triton spec.egress[*]",
    "NetworkPolicy/dns spec.egress[*]",
    "Role/* rules[*]",
    "ScaledObject/* spec.triggers[*].metadata",
)


def parts_of(world: World) -> Iterator[Mutant]:
    """The manifests without each of them."""
    for number, one in enumerate(world.manifests.objects):
        for where, steps in _parts(one, f"{one.get('kind')}/{name_of(one)} ", ()):
            if any(_is_like(where, text) for text in PARTS):
                yield without(world, where, number, steps)


def _is_like(where: str, text: str) -> bool:
    """Whether this is the part itself, and nothing further down."""
    return where.count("[") == text.count("[") and pattern(text).fullmatch(where) is not None


def _parts(value: Any, where: str, steps: Steps) -> Iterator[tuple[str, Steps]]:
    held: Any = ()
    if isinstance(value, dict):
        held = [(f".{key}" if steps else str(key), key, one) for key, one in value.items()]
    elif isinstance(value, list):
        held = [(f"[{_called(one, i)}]", i, one) for i, one in enumerate(value)]
    for shown, step, one in held:
        if isinstance(one, (dict, list)):
            yield where + shown, (*steps, step)
            yield from _parts(one, where + shown, (*steps, step))


def _called(one: Object | Any, index: int) -> str:
    return str(one.get("name", index)) if isinstance(one, dict) else str(index)
