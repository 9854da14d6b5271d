"""The rules: what manifests and program must agree on, by subject."""

from k8s.facts.rules import (
    files,
    links,
    pods,
    ports,
    rights,
    scaling,
    seen,
    walls,
    wholes,
    words,
)
from k8s.facts.world import Rule, World

RULES: tuple[Rule, ...] = (
    *words.RULES,
    *ports.RULES,
    *links.RULES,
    *scaling.RULES,
    *walls.RULES,
    *rights.RULES,
    *pods.RULES,
    *files.RULES,
    *seen.RULES,
    *wholes.RULES,
)


def problems(world: World) -> list[str]:
    """Every sentence of every rule."""
    return [sentence for rule in RULES for sentence in rule(world)]
