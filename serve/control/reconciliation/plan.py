"""The plan: the steps that lead one replica from what it holds to what is wanted.

| seen on the replica                              | step                                     |
|--------------------------------------------------|------------------------------------------|
| a wanted version is not ready                    | load exactly the wanted versions         |
| a wanted version answers wrongly                 | the same, without it and then with it    |
| the configuration on disk has changed            | load exactly the wanted versions         |
| a version is ready that is not wanted            | the same, once no worker routes to it    |
| something is ready that is not wanted at all     | unload it, once no worker routes to it   |
| something is ready that belongs to another pool  | the same, once that pool has taken over  |

What takes nothing but a moment comes first: it may make the room that a load needs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from serve.control.observations import Held
from serve.control.registry import Loadable
from serve.triton.control import IndexEntry

_NONE: Mapping[str, Collection[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Load:
    """Load exactly these versions.

    `removes`: some that are ready now will go. `wrong`: those that are ready and have to be loaded
    anew. `adds`: whether something is brought that takes time: a version, or a configuration.
    """

    model: Loadable
    versions: tuple[int, ...]
    removes: bool
    wrong: tuple[int, ...] = ()
    adds: bool = True

    @property
    def name(self) -> str:
        """The name in Triton."""
        return self.model.name

    @property
    def about(self) -> tuple[object, ...]:
        """What a failure of this step is about: the same again would fail again."""
        configuration = self.model.configuration
        return self.versions, configuration and configuration.digest, self.model.fingerprint


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload what has gone, or is not wanted any more."""

    name: str


Step = Load | Unload


def removes(step: Step) -> bool:
    """Whether something that is ready now will go."""
    return isinstance(step, Unload) or step.removes


def takes_time(step: Step) -> bool:
    """Whether the replica will be busy with it, so that calls should go elsewhere meanwhile."""
    return isinstance(step, Load) and step.adds


def plan(
    models: Mapping[str, Loadable],
    held: Held,
    applied: Mapping[str, str],
    removed: frozenset[str],
    again: Collection[str] = (),
    wrong: Mapping[str, Collection[int]] = _NONE,
) -> list[Step]:
    """The steps for one replica, in their order.

    `applied` are the digests of the configurations that are loaded here; what is not in it is taken
    as it is. Names in `again` are loaded even if they are as they should be. `wrong` are versions
    that are ready and must not be called.
    """
    steps: list[Step] = []
    for model in parts_first(models):
        ready = held.get(model.name, ())
        if model.problem:
            continue
        if model.configuration is None:
            if not ready or model.name in again:
                steps.append(Load(model, (), removes=False))
            continue
        digest = model.configuration.digest
        stale = applied.get(model.name, digest) != digest or model.name in again
        bad = tuple(v for v in model.wanted if v in ready and v in wrong.get(model.name, ()))
        if model.wanted and (stale or bad or set(ready) != set(model.wanted)):
            going = not set(ready) <= set(model.wanted)
            adds = stale or bool(bad) or not set(model.wanted) <= set(ready)
            steps.append(Load(model, model.wanted, going, bad, adds))
    steps.extend(Unload(name) for name in sorted(removed) if held.get(name))
    return steps


def delivered(
    models: Mapping[str, Loadable], has: Mapping[str, Collection[int]]
) -> Mapping[str, Loadable]:
    """What of it a Triton would find: published versions that are on their way wait."""
    found = {}
    for name, one in models.items():
        there = one.wanted
        if one.published:
            there = tuple(version for version in one.wanted if version in has.get(name, ()))
        if there or not one.wanted:
            found[name] = one if there == one.wanted else replace(one, wanted=there)
    return MappingProxyType(found)


def parts_first(models: Mapping[str, Loadable]) -> Sequence[Loadable]:
    """In an order in which an ensemble follows what it is made of."""
    order: dict[str, Loadable] = {}
    visiting: set[str] = set()

    def visit(name: str) -> None:
        model = models.get(name)
        if model is None or name in order or name in visiting:
            return
        visiting.add(name)
        for part in model.composing_models:
            visit(part)
        order[name] = model

    for name in sorted(models):
        visit(name)
    return list(order.values())


def held_of(index: Sequence[IndexEntry]) -> Held:
    """The ready versions of a repository index."""
    ready: dict[str, list[int]] = {}
    for entry in index:
        if entry.state == "READY":
            ready.setdefault(entry.model, []).append(entry.version)
    return MappingProxyType({name: tuple(sorted(v)) for name, v in ready.items()})
