"""Everything that can be wrong, one at a time, in the manifests and in the program.

What is wrong of a value follows from its claim (`claims.py`). Text is mutated word by word: each
run of letters or digits gets another one in its middle, so that every part of a URL, a flag or a
path has to be held against something.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from k8s.facts.claims import BOTH, ENOUGH, EXACT, FLAG, GIVEN, KEY, NAMES, NOT, SOME, Claim
from k8s.facts.manifests import GONE, Leaf, Manifests, Steps
from k8s.facts.program import Port, Program
from k8s.facts.rules import is_noticed
from k8s.facts.rules.seen import names_in
from k8s.facts.world import World

from serve.settings import PREFIX, Settings

_RUN = re.compile(r"[A-Za-z]+|[0-9]+")
_USUAL = Settings().environment()


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is wrong, and the world in which it is."""

    what: str
    make: Callable[[], World]


def of_manifests(world: World, leaf: Leaf, claim: Claim) -> Iterator[Mutant]:
    """The manifests with this value wrong, in every way that its claim knows."""
    before = world.manifests
    *_, key = leaf.steps
    if claim.how in (KEY, BOTH) and isinstance(key, str):
        for other in _texts(key):
            change = partial(before.with_key, leaf.number, leaf.steps, other)
            yield Mutant(f"{leaf} is called {other}", partial(_changed, world, change))
    for value in _values(leaf, claim):
        change = partial(before.with_value, leaf.number, leaf.steps, value)
        told = "is gone" if value is GONE else f"is {value!r}"
        yield Mutant(f"{leaf} {told}", partial(_changed, world, change))


@dataclass(slots=True)
class Trial:
    """Mutants that were tried, in one rendering or another, and those that nobody noticed in any.

    The same mutant may do no harm in one rendering and be noticed in the next: an address that only
    agents use is nothing to a cluster without agents.
    """

    tried: set[str] = field(default_factory=set)
    alive: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, mutants: Iterable[Mutant]) -> bool:
        """Try those of one rendering; whether all of them were noticed by now."""
        seen = set()
        for one in mutants:
            seen.add(one.what)
            if one.what in self.tried and one.what not in self.alive:
                continue
            self.tried.add(one.what)
            if is_noticed(one.make()):
                self.alive.pop(one.what, None)
            else:
                self.alive[one.what] = name
        return not seen & self.alive.keys()

    def __str__(self) -> str:
        return "\n".join(f"{what} ({name})" for what, name in self.alive.items())


def without(world: World, where: str, number: int, steps: Steps) -> Mutant:
    """The manifests without a whole part, such as a probe or an entry of a list."""
    change = partial(world.manifests.with_value, number, steps, GONE)
    return Mutant(f"{where} is gone", partial(_changed, world, change))


def of_program(world: World, kind: str, name: str) -> Iterator[Mutant]:
    """The program without this fact, and with another value of it."""
    program = world.program
    yield Mutant(f"no {kind} {name}", partial(_with, world, program.changed(kind, name, None)))
    value = program.facts[kind][name]
    for other in _others(value):
        changed = program.changed(kind, name, other)
        told = f"{kind} {name} is {other!r}, not {value!r}"
        yield Mutant(told, partial(_with, world, changed))


def _changed(world: World, change: Callable[[], Manifests]) -> World:
    return World(change(), world.program)


def _with(world: World, program: Program) -> World:
    return World(world.manifests, program)


def _values(leaf: Leaf, claim: Claim) -> Iterator[Any]:
    value = leaf.value
    match claim.how:
        case _ if claim.how in (EXACT, BOTH, GIVEN):
            if claim.how != GIVEN and not _is_usual(leaf):
                yield GONE
            yield from _tail(leaf) if leaf.path.endswith(".image") else _wrong(value)
        case _ if claim.how == FLAG:
            flag, equals, rest = str(value).partition("=")
            yield from (f"{other}{equals}{rest}" for other in _texts(flag))
            if equals and rest.isdigit():
                yield f"{flag}=some"
        case _ if claim.how == NAMES:
            yield from names_in(str(value), _texts)
        case _ if claim.how == ENOUGH:
            yield 1
        case _ if claim.how == SOME:
            yield GONE
            yield 0
        case _:
            assert claim.how in (KEY, NOT)


def _tail(leaf: Leaf) -> Iterator[str]:
    """Another image; the registry of our own is the operator's."""
    registry, slash, name = str(leaf.value).rpartition("/")
    yield from (f"{registry}{slash}{other}" for other in _texts(name))
    if registry.startswith("nvcr.io"):
        yield from (f"{other}{slash}{name}" for other in _texts(registry))


def _is_usual(leaf: Leaf) -> bool:
    """Whether a setting has the value that it would have by itself: nothing is wrong without it."""
    key = leaf.steps[-1]
    if not (isinstance(key, str) and key.startswith(PREFIX)):
        return False
    return _USUAL.get(key) == leaf.value


def _wrong(value: Any) -> Iterator[Any]:
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
            yield value - 1
        case str():
            yield from _texts(value)


def _texts(text: str) -> Iterator[str]:
    """The text with another sign in the middle of one word, or a number one off."""
    for found in _RUN.finditer(text):
        for other in _words(found[0]):
            yield text[: found.start()] + other + text[found.end() :]


def _words(word: str) -> Iterator[str]:
    if word.isdigit():
        yield str(int(word) + 1)
        if int(word):
            yield str(int(word) - 1)
        return
    middle = len(word) // 2
    sign = "q" if word[middle].lower() != "q" else "z"
    sign = sign.upper() if word[middle].isupper() else sign
    yield word[:middle] + sign + word[middle + 1 :]


def _others(value: Any) -> Iterator[Any]:
    match value:
        case Port(number, host) if number:
            yield Port(number + 1, host)
        case bool():
            yield not value
        case int():
            yield value + 1
