"""Discovered: which replicas there are, by what all sources say together.

| what is said of a Triton                          | whether it is a member                       |
|---------------------------------------------------|----------------------------------------------|
| it is named with `--triton`                       | always                                       |
| it is there, ready or not                         | yes: the control plane looks at each itself, |
|                                                   | and one that loads a model may be not ready  |
| it is terminating                                 | no, from now on                              |
| it is not named any more, others of its pool are  | for two seconds: a pool's slices change one  |
|                                                   | after the other, and the others may follow   |
| all of its pool vanished, from one source, none of| as long as one of them answers: a list that  |
| which was terminating                             | was lost looks just like that                |
| its name, or its address, is another's            | no; the source that was named first is right |
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint

STATIC = "--triton"  # the source of those that were named at the start
Where = tuple[str, str]  # a source and a pool
_SETTLED = 2.0  # seconds without being named, until one is believed to be gone


@dataclass(frozen=True, slots=True)
class Member:
    """One replica, and which source names it."""

    replica: Replica
    source: str


@dataclass(frozen=True, slots=True)
class DiscoveredMembers:
    """All of them by name. `kept` are names of whole pools that no source has any more.

    `missing` are all members that none names: since when, in seconds. `problems` are by source.
    """

    by_name: Mapping[str, Member]
    kept: Mapping[Where, tuple[str, ...]]
    missing: Mapping[str, float]
    problems: Mapping[str, tuple[str, ...]]

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The list as membership takes it."""
        return tuple(one.replica for one in self.by_name.values())


_EMPTY: Mapping[Any, Any] = MappingProxyType({})
NOBODY = DiscoveredMembers(_EMPTY, _EMPTY, _EMPTY, _EMPTY)


@dataclass(slots=True)
class _Said:
    """What the sources say: members, whose each name and address is, and where some end."""

    found: dict[str, Member]
    sources: dict[str, str]  # of all names, those included that are no members
    names: dict[str, str]  # by address
    ends: set[Where]
    problems: dict[str, tuple[str, ...]]


def merged(
    static: Iterable[Replica],
    told: Mapping[str, Collection[Endpoint]],
    *,
    before: DiscoveredMembers,
    ended: Collection[str],
    answers: Callable[[str], bool],
    now: float,
) -> DiscoveredMembers:
    """The members now. `told` is in the order in which sources were named.

    `before` are the members until now, and `ended` the names of those that have been terminating;
    `answers` says whether a replica does, or did so a moment ago.
    """
    said = _said(static, told)
    vanished = {
        name: one
        for name, one in before.by_name.items()
        if name not in said.sources and one.replica.address not in said.names and one.source in told
    }
    believed = said.ends | {_where(one) for name, one in vanished.items() if name in ended}
    named = {_where(one) for one in said.found.values()}
    missing: dict[str, float] = {}
    pools: dict[Where, tuple[str, ...]] = {}
    for name, one in vanished.items():
        where, since = _where(one), before.missing.get(name, now)
        if where in believed:
            continue
        if where not in named:
            pools[where] = (*pools.get(where, ()), name)
        elif now - since < _SETTLED:
            missing[name] = since
    kept = {where: names for where, names in pools.items() if any(map(answers, names))}
    missing |= {name: now for names in kept.values() for name in names}  # until others are named
    members = said.found | {name: vanished[name] for name in missing}
    return DiscoveredMembers(
        MappingProxyType(members),
        MappingProxyType(kept),
        MappingProxyType(missing),
        MappingProxyType(said.problems),
    )


def _said(static: Iterable[Replica], told: Mapping[str, Collection[Endpoint]]) -> _Said:
    found = {one.name: Member(one, STATIC) for one in static}
    names = {one.replica.address: name for name, one in found.items()}
    said = _Said(found, dict.fromkeys(found, STATIC), names, set(), {})
    for source, endpoints in told.items():
        for endpoint in sorted(endpoints, key=lambda one: one.is_terminating):
            replica = endpoint.replica
            wrong = _clash(replica, said.sources, said.names)
            if wrong:
                said.problems[source] = (*said.problems.get(source, ()), wrong)
                continue
            said.sources[replica.name], said.names[replica.address] = source, replica.name
            if endpoint.is_terminating:
                said.ends.add((source, replica.pool))
            else:
                said.found[replica.name] = Member(replica, source)
    return said


def _clash(one: Replica, sources: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Why this cannot be a replica beside those that there are already; empty when it can."""
    if one.name in sources:
        return f"{one.name} is ignored: {sources[one.name]} also has a replica of this name"
    if one.address in names:
        other = names[one.address]
        return f"{one.name} is ignored: {other} of {sources[other]} has its address {one.address}"
    return ""


def _where(one: Member) -> Where:
    return one.source, one.replica.pool
