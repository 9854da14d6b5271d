"""Placement: which published versions the replicas of a pool should hold, and which have to go.

A version is *called* while the route or a label names it, or it is the newest of a model without a
route. It is *asked for* while a label or the route waits for it, and then while somebody wants it
to be kept. What an ensemble is made of stands where the ensemble does. Others are loaded too while
there is reason to think that they will be needed, and give way when memory is short:

| a published version                                | is held                                    |
|----------------------------------------------------|--------------------------------------------|
| is called                                          | always; a problem when there is no room    |
| is asked for                                       | a problem when those leave no room         |
| is one of the newest `keep_loaded` of its model    | as long as there is room                   |
| was needed less than `unload_after` seconds ago    | as long as there is room                   |
| everything else                                    | no                                         |

Room is the pool's budget per replica: each replica holds all versions of its pool's models, and of
its group's, so that what has no room in one pool of a group is held in none. Of two that are needed
alike, the one that was published first has it.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serve.control.decisions import Decisions
from serve.control.versions import PublishedVersion

Name = tuple[str, int]  # a model and a version
Rank = tuple[int, float]  # how much it is needed, and since when it can be; the least comes first
_CALLED, _AWAITED, _KEPT = range(3)


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's. `budgets` are bytes of memory per replica by pool; no entry is no limit."""

    keep_loaded: int = 2
    unload_after: float = 300.0  # seconds
    budgets: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Placed:
    """The versions to be held, and for those that are needed and find no room, why."""

    wanted: frozenset[Name]
    problems: Mapping[Name, str]


class Placement:
    """Decides, and remembers since when a version is not needed any more. `clock`: seconds."""

    def __init__(self, rules: Rules, *, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._needed_at: dict[Name, float] = {}

    def __repr__(self) -> str:
        return f"<Placement {self._rules}>"

    def place(self, decisions: Decisions, plain: Mapping[str, Collection[int]]) -> Placed:
        """What is wanted now. `plain` are the version numbers in folders that people keep."""
        now = self._clock()
        published = {
            (version.model, version.number): version
            for version in _published(decisions)
            if not decisions.is_unloaded(version.model)
        }
        needed = _needed(decisions, published, plain)
        self._needed_at = {
            name: now if name in needed else self._needed_at[name]
            for name in published
            if name in needed or name in self._needed_at
        }
        spare = [name for name in published if name not in needed and self._is_kept(name, now)]
        recent = _newest(published, self._rules.keep_loaded)
        spare += [name for name in recent if name not in needed and name not in spare]
        spare.sort(key=lambda name: (name in recent, self._needed_at.get(name, 0.0), name[1]))
        return self._fit(decisions, published, needed, spare)

    def _is_kept(self, name: Name, now: float) -> bool:
        last = self._needed_at.get(name)
        return last is not None and now - last < self._rules.unload_after

    def _fit(
        self,
        decisions: Decisions,
        published: Mapping[Name, PublishedVersion],
        needed: Mapping[Name, Rank],
        spare: list[Name],
    ) -> Placed:
        """Fill each pool up to its budget: the needed first, in the order of their ranks."""
        used: dict[str, int] = {}
        wanted: set[Name] = set()
        problems: dict[Name, str] = {}
        first = sorted(needed, key=lambda name: (needed[name], name))
        for name in (*first, *reversed(spare)):
            pools, takes = decisions.pools(name[0]), memory_of(published[name])
            refused = self._without_room(pools, takes, used)
            if not refused:
                used.update({pool: used.get(pool, 0) + takes for pool in pools})
                wanted.add(name)
            elif name in needed:
                problems[name] = refused
        return Placed(frozenset(wanted), MappingProxyType(problems))

    def _without_room(self, pools: Iterable[str], takes: int, used: Mapping[str, int]) -> str:
        """Which of these pools has no room for so many bytes; empty when all have."""
        for pool in pools:
            budget = self._rules.budgets.get(pool)
            left = None if budget is None else max(budget - used.get(pool, 0), 0)
            if left is not None and takes > left:
                return (
                    f"pool '{pool}' has too little memory for it: it needs {takes} bytes, and "
                    f"{left} of {budget} are free"
                )
        return ""


def memory_of(version: PublishedVersion) -> int:
    """Bytes that a version takes on a replica: as measured in quarantine, else its files' size."""
    return version.size if version.memory is None else version.memory


def _published(decisions: Decisions) -> Iterator[PublishedVersion]:
    for versions in decisions.versions.values():
        yield from (version for version in versions.values() if version.is_published)


def _newest(names: Collection[Name], count: int) -> set[Name]:
    """The highest numbers of each model."""
    found: set[Name] = set()
    for model in {model for model, _ in names}:
        numbers = sorted((number for one, number in names if one == model), reverse=True)
        found.update((model, number) for number in numbers[:count])
    return found


def _needed(
    decisions: Decisions,
    published: Mapping[Name, PublishedVersion],
    plain: Mapping[str, Collection[int]],
) -> Mapping[Name, Rank]:
    called = _called(decisions, published, plain)
    by_name = {(version.physical, version.number): name for name, version in published.items()}
    waiting: list[tuple[Rank, Name]] = []
    for name, version in published.items():
        awaited = _AWAITED if version.labels or version.live else _KEPT if version.keep else None
        how = _CALLED if name in called else awaited
        if how is not None:
            waiting.append(((how, version.times.get("published", 0.0)), name))
    heapq.heapify(waiting)
    found: dict[Name, Rank] = {}
    while waiting:  # an ensemble needs what it is made of, which may be ensembles again
        rank, name = heapq.heappop(waiting)
        if name not in found:
            found[name] = rank
            for part in pinned_parts(published[name]):
                if part in by_name:
                    heapq.heappush(waiting, (rank, by_name[part]))
    return found


def _called(
    decisions: Decisions,
    published: Mapping[Name, PublishedVersion],
    plain: Mapping[str, Collection[int]],
) -> set[Name]:
    found: set[Name] = set()
    for model in {model for model, _ in published}:
        route = decisions.route(model)
        found.update((model, number) for number in (route.versions if route else ()))
        found.update((model, number) for number in decisions.labels(model).values())
        if route is None:
            newest = max(number for one, number in published if one == model)
            if newest > max(plain.get(model, ()), default=0):
                found.add((model, newest))
    return found & published.keys()


def pinned_parts(version: PublishedVersion) -> tuple[Name, ...]:
    """What a published ensemble is made of: names in Triton, and the numbers it is pinned to."""
    if "ensemble_scheduling" not in version.config:
        return ()
    steps = version.configuration.message.ensemble_scheduling.step
    return tuple((step.model_name, int(step.model_version)) for step in steps)
