"""What manifests and program share is the same on both sides, in every rendering that there is.

The facts of both sides are extracted: manifests as kubectl renders them, the program as it runs.
`facts/` has the machine, and `test_mutations.py` shows that it would notice.
"""

import pytest

from k8s.facts import combinations
from k8s.facts.claims import claim_of
from k8s.facts.images import images_of
from k8s.facts.manifests import Manifests
from k8s.facts.program import ROOT, Program
from k8s.facts.rules import problems
from k8s.facts.world import World


def test_every_rendering_agrees_with_the_program(
    manifests: dict[str, Manifests], program: Program
) -> None:
    found = {
        f"{name}: {sentence}"
        for name, one in manifests.items()
        for sentence in problems(World(one, program))
    }
    assert not found, "\n".join(sorted(found))


def test_every_value_of_the_manifests_is_shared_or_is_not_for_a_reason(
    manifests: dict[str, Manifests],
) -> None:
    unknown = {
        f"{leaf} = {leaf.value!r} ({name})"
        for name, one in manifests.items()
        for leaf in one.leaves()
        if claim_of(leaf) is None
    }
    assert not unknown, "\n".join(sorted(unknown))


def test_every_component_is_in_a_combination() -> None:
    chosen = {name for some in combinations.combinations() for name in some}
    folder = ROOT / "k8s" / "components"
    there = {one.name for one in folder.iterdir() if (one / "kustomization.yaml").exists()}
    assert there - chosen == set(combinations.PARTS)


def test_every_container_file_makes_an_image() -> None:
    names = {one["metadata"]["name"] for one in images_of(ROOT / "k8s" / "images")}
    assert names >= {"servegate", "servegate-load", "servegate-converter"}


@pytest.mark.parametrize(
    "kind", ["variable", "command", "flag", "port", "path", "metric", "triton flag", "asks", "page"]
)
def test_the_program_has_facts_of_every_kind(program: Program, kind: str) -> None:
    assert program.facts[kind]
