"""Every shared fact is made wrong, one after the other, on both sides; each has to be noticed.

In a rendering that is wrong to begin with everything would be noticed: it has to be right first.
"""

from collections.abc import Iterator

from k8s.facts.claims import NOT, claim_of
from k8s.facts.manifests import Manifests
from k8s.facts.mutations import Trial, of_manifests, of_program
from k8s.facts.parts import parts_of
from k8s.facts.program import Program
from k8s.facts.rules import problems
from k8s.facts.world import World


def sound(manifests: dict[str, Manifests], program: Program) -> Iterator[tuple[str, World]]:
    """Every rendering by its name, with a program of its own that remembers what was asked."""
    for name, one in manifests.items():
        world = World(one, Program(program.facts))
        assert problems(world) == [], name
        yield name, world


def test_every_wrong_value_in_the_manifests_is_noticed(
    manifests: dict[str, Manifests], program: Program
) -> None:
    trial, facts, noticed = Trial(), set(), set()
    for name, world in sound(manifests, program):
        for leaf in world.manifests.leaves():
            claim, fact = claim_of(leaf), f"{leaf} {leaf.value!r}"
            if claim is None or claim.how == NOT or fact in noticed:
                continue
            facts.add(fact)
            if trial.run(name, of_manifests(world, leaf, claim)):
                noticed.add(fact)
    print(
        f"{len(facts)} facts of the manifests, {len(trial.tried)} mutants, {len(trial.alive)} alive"
    )
    assert not trial.alive, str(trial)


def test_every_part_that_is_left_out_is_noticed(
    manifests: dict[str, Manifests], program: Program
) -> None:
    trial = Trial()
    for name, world in sound(manifests, program):
        trial.run(name, parts_of(world))
    print(f"{len(trial.tried)} parts left out, {len(trial.alive)} of them unnoticed")
    assert not trial.alive, str(trial)


def test_every_change_of_the_program_that_manifests_rely_on_is_noticed(
    manifests: dict[str, Manifests], program: Program
) -> None:
    trial, facts = Trial(), set()
    for name, world in sound(manifests, program):
        for kind, fact in sorted(world.program.used):
            facts.add((kind, fact))
            trial.run(name, of_program(world, kind, fact))
    print(
        f"{len(facts)} facts of the program, {len(trial.tried)} mutants, {len(trial.alive)} alive"
    )
    assert not trial.alive, str(trial)
