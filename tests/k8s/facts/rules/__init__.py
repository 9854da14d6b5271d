"""The rules: what manifests and program must agree on, by subject."""

from k8s.facts.rules import files, links, pods, ports, scaling, seen, walls, wholes, words
from k8s.facts.world import RULES, World

__all__ = ["files", "links", "pods", "ports", "scaling", "seen", "walls", "wholes", "words"]


def problems(world: World) -> list[str]:
    return [sentence for rule in RULES for sentence in rule(world)]
