"""The fleet: what every replica was last seen to hold, and why it does not hold more.

A replica that cannot be reached keeps what it was last seen to hold on record. As long as some
other replica holds a version, the lost one gets no calls; when no other does, its last known state
stays in force, because a control plane that has lost sight of everything must not switch everything
off.

Replicas come and go meanwhile: `join`, and `retire` before `remove`. One that is retired gets no
calls, not even those that nobody else can answer.

Who holds what: the names of replicas by version, by pool and by state.

A snapshot is compiled anew at every piece of news. With thousands of replicas it cannot look at
each of them for each version; so this is kept while news come, a replica at a time, and compiling
is a few operations on sets.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from serve.control.barred_versions import Barring
from serve.control.observations import FlavourChoice, Held, LoadFailure, Observation
from serve.core.replicas import Replica

# --- who holds what -------------------------------------------------------------------------------


_KEPT = 32  # orders that are remembered: one for each set of replicas that hold the same


class Holders:
    """Kept by `put` and `drop`; what it gives is to be read, not to be changed."""

    def __init__(self, seen: Iterable[Observation] = ()) -> None:
        self._up: set[str] = set()
        self._pools: dict[str, set[str]] = {}
        self._held: dict[str, dict[int, set[str]]] = {}  # by name in Triton and version
        self._ordered: dict[frozenset[str], tuple[str, ...]] = {}
        for one in seen:
            self.put(None, one)

    def __repr__(self) -> str:
        return f"<Holders up={len(self._up)} names={len(self._held)}>"

    @property
    def up(self) -> Set[str]:
        """The replicas that answer."""
        return self._up

    @property
    def pools(self) -> frozenset[str]:
        """The pools that have a replica."""
        return frozenset(self._pools)

    def members(self, pools: Iterable[str]) -> Set[str]:
        """The replicas of these pools, whatever their state."""
        found = [self._pools.get(pool, set()) for pool in pools]
        return found[0] if len(found) == 1 else set[str]().union(*found)

    def of(self, name: str, version: int) -> Set[str]:
        """The replicas that were last seen to hold a version of a name in Triton."""
        return self._held.get(name, {}).get(version, set())

    def versions(self, name: str) -> tuple[int, ...]:
        """The versions of a name in Triton that any replica holds, ascending."""
        return tuple(sorted(self._held.get(name, ())))

    @property
    def everything(self) -> Mapping[str, tuple[int, ...]]:
        """The versions that any replica holds, by name in Triton."""
        return {name: self.versions(name) for name in self._held}

    def ordered(self, names: Set[str]) -> tuple[str, ...]:
        """These names by the alphabet; equal sets give the same object, as long as it matters."""
        key = frozenset(names)
        found = self._ordered.get(key)
        if found is None:
            if len(self._ordered) >= _KEPT:
                self._ordered.clear()
            found = self._ordered[key] = tuple(sorted(key))
        return found

    def put(self, before: Observation | None, now: Observation) -> None:
        """What is known of a replica has changed; `before` is None for a new one."""
        name = now.replica.name
        self._pools.setdefault(now.replica.pool, set()).add(name)
        if now.is_up:
            self._up.add(name)
        else:
            self._up.discard(name)
        if before is None or before.held is not now.held:
            old = set() if before is None else _slots(before)
            new = _slots(now)
            self._forget(name, old - new)
            for model, version in new - old:
                self._held.setdefault(model, {}).setdefault(version, set()).add(name)

    def drop(self, last: Observation) -> None:
        """A replica is gone."""
        name, pool = last.replica.name, last.replica.pool
        self._up.discard(name)
        self._pools[pool].discard(name)
        if not self._pools[pool]:
            del self._pools[pool]
        self._forget(name, _slots(last))

    def _forget(self, name: str, slots: Iterable[tuple[str, int]]) -> None:
        for model, version in slots:
            holders = self._held[model][version]
            holders.discard(name)
            if not holders:
                del self._held[model][version]
                if not self._held[model]:
                    del self._held[model]


def _slots(seen: Observation) -> set[tuple[str, int]]:
    return {(name, version) for name, versions in seen.held.items() for version in versions}


# --- the fleet ------------------------------------------------------------------------------------


LOADING = "it is being loaded"  # why a version is barred that is not yet known to be right
_NONE: Mapping[str, FlavourChoice] = MappingProxyType({})
T = TypeVar("T")


class Fleet:
    """All replicas and what is known of them; changes are told to one listener.

    `is_complete`: these are all that there are at the start; else those that join until `complete`
    count as well.
    """

    def __init__(
        self,
        replicas: tuple[Replica, ...],
        *,
        clock: Callable[[], float],
        is_complete: bool = True,
    ) -> None:
        self._clock = clock
        self._seen = {replica.name: Observation(replica) for replica in replicas}
        self._first = frozenset(self._seen)  # those that were there at the start, and still are
        self._is_complete = is_complete
        self._answered = is_complete and not replicas
        self._retired: set[str] = set()
        self.holding = Holders(self._seen.values())  # the same as sets of names
        self.barred = Barring()  # what may not be called, even if nobody else can answer
        self._leaving: dict[str, set[tuple[str, int]]] = {}  # by replica
        self._staying: Mapping[str, Replica] | None = None  # by name, until somebody comes or goes
        self.steered: set[str] = set()  # replicas that get calls only where nobody else can
        self.joining: set[str] = set()  # the same, because they came empty and lack something yet
        self.waiting: dict[str, str] = {}  # replicas that may not load now, and why
        self.failures: dict[tuple[str, str], LoadFailure] = {}
        self.flavours: dict[tuple[str, str], str] = {}  # in force, by replica and name in Triton
        self._choices: dict[str, Mapping[str, FlavourChoice]] = {}  # by replica
        self._trying: dict[str, tuple[str, str]] = {}  # name in Triton → revision, replica

    def __repr__(self) -> str:
        return f"<Fleet {len(self._seen)} replicas, {len(self.holding.up)} answer>"

    @property
    def observations(self) -> Mapping[str, Observation]:
        """Every replica by name."""
        return self._seen

    @property
    def is_complete(self) -> bool:
        """Whether all that were there at the start have joined."""
        return self._is_complete

    @property
    def is_known(self) -> bool:
        """Whether all that were there at the start were looked at, and one has answered since.

        Where there was none at the start, that is known. Who joins later is not waited for.
        """
        states = [self._seen[name].state for name in self._first]
        return self._is_complete and "unseen" not in states and self._answered

    @property
    def pools(self) -> frozenset[str]:
        """The pools that have at least one replica."""
        return self.holding.pools

    @property
    def staying(self) -> Mapping[str, Replica]:
        """The replicas by name, in its order, without those that are retired."""
        if self._staying is None:
            names = sorted(self._seen.keys() - self._retired)
            self._staying = MappingProxyType({name: self._seen[name].replica for name in names})
        return self._staying

    def in_pool(self, *pools: str) -> tuple[str, ...]:
        """The replicas of these pools, those included that do not answer, but no retired ones."""
        return self.holding.ordered(self.holding.members(pools) - self._retired)

    def is_free(self, name: str) -> bool:
        """Whether the replica answers and stays, and calls are not steered around it."""
        return self.is_present(name) and not self.is_busy(name)

    def is_present(self, name: str) -> bool:
        """Whether the replica answers, and stays."""
        return not self.is_retired(name) and self._seen[name].is_up

    def is_retired(self, name: str) -> bool:
        """Whether it is about to leave, or has left."""
        return name in self._retired or name not in self._seen

    def join(self, replica: Replica, wished_at: float | None = None) -> None:
        """There is one more; nothing is known of it yet. `wished_at`: monotonic seconds."""
        now = self._clock()
        if self._is_complete:
            one = Observation(replica, since=now, joined_at=now, wished_at=wished_at)
        else:
            one = Observation(replica)
            self._first |= {replica.name}
        self._seen = {**self._seen, replica.name: one}  # who walks through the old one goes on
        self.holding.put(None, one)
        self._staying = None

    def complete(self) -> None:
        """All that were there at the start have joined."""
        self._is_complete = True
        self._answered |= not self._first

    def retire(self, name: str) -> None:
        """It is about to leave: no calls go there, even if nobody else can answer them."""
        self._retired.add(name)
        self._staying = None
        self._trying = {key: one for key, one in self._trying.items() if one[1] != name}

    def take_back(self, name: str) -> None:
        """It stays after all."""
        if name in self._retired:
            self._retired.discard(name)
            self._staying = None

    def remove(self, name: str) -> None:
        """It is gone, and with it all that was known of it."""
        self.holding.drop(self._seen[name])
        self._seen = {one: seen for one, seen in self._seen.items() if one != name}
        self._staying = None
        self._first -= {name}
        self._answered |= not self._first
        self.left(name)
        self.barred.drop(name)
        self._choices.pop(name, None)
        _drop(name, self.failures)
        _drop(name, self.flavours)
        for names in (self._retired, self.steered, self.joining):
            names.discard(name)
        self.waiting.pop(name, None)

    def is_busy(self, name: str) -> bool:
        """Whether new calls go elsewhere: it still lacks something, or is given something."""
        return name in self.steered or name in self.joining

    @contextlib.contextmanager
    def steering(self, name: str) -> Iterator[None]:
        """Inside, the replica gets only calls that nobody else can answer."""
        self.steered.add(name)
        try:
            yield
        finally:
            self.steered.discard(name)

    def can_be_called(self, replica: str, name: str, version: int) -> bool:
        """Whether a replica answers, holds a version, and calls for it may come."""
        seen, slot = self._seen[replica], (name, version)
        is_held = seen.is_up and version in seen.held.get(name, ()) and replica not in self._retired
        is_away = self.barred.has(replica, slot) or slot in self._leaving.get(replica, ())
        return is_held and not is_away

    def bar(self, replica: str, name: str, versions: Iterable[int], why: str) -> None:
        """No calls go to these versions there, even if nobody else can answer them."""
        for version in versions:
            self.barred.put(replica, (name, version), why)

    def admit(self, replica: str, name: str, version: int) -> None:
        """The version answers rightly there, as far as anybody can tell."""
        self.barred.take(replica, (name, version))

    def leave(self, replica: str, name: str, versions: Iterable[int]) -> None:
        """These versions are about to go there, whatever becomes wanted meanwhile: no calls."""
        slots = {(name, version) for version in versions}
        self._leaving[replica] = self._leaving.get(replica, set()) | slots

    def left(self, replica: str) -> bool:
        """What was to go there has gone, or has not and is held as before; whether any was."""
        return bool(self._leaving.pop(replica, ()))

    def wrong(self, replica: str) -> Mapping[str, Mapping[int, str]]:
        """The versions that answer wrongly on a replica, and what is wrong, by name in Triton."""
        found: dict[str, dict[int, str]] = {}
        for (name, version), why in self.barred.on(replica):
            if why != LOADING:
                found.setdefault(name, {})[version] = why
        return found

    def loading(self, replica: str, name: str) -> tuple[int, ...]:
        """The versions that are barred until it is known whether they are right."""
        barred = self.barred.on(replica)
        return tuple(version for (one, version), why in barred if (one, why) == (name, LOADING))

    def unproven(self, replica: str) -> frozenset[str]:
        """The names in Triton under which something is so barred there."""
        return frozenset(name for (name, _), why in self.barred.on(replica) if why == LOADING)

    def tries(self, replica: str, name: str, revision: str) -> None:
        """The replica is the one that finds out whether this revised configuration is good."""
        if not self.is_retired(replica):
            self._trying[name] = revision, replica

    def found_good(self, replica: str, name: str, revision: str) -> None:
        """It is, so the next one may try it."""
        if self._trying.get(name) == (revision, replica):
            del self._trying[name]

    def tried_by(self, name: str, revision: str) -> str:
        """The replica that tries a revised configuration, or on which it has failed; or empty."""
        known, replica = self._trying.get(name, ("", ""))
        return replica if revision and known == revision else ""

    def choose(self, replica: str, choices: Mapping[str, FlavourChoice]) -> None:
        """In which flavours a replica should hold what has flavours, by name in Triton."""
        self._choices[replica] = choices

    def choice(self, replica: str, name: str) -> FlavourChoice | None:
        """What was chosen; None for what has no flavours, or was not looked at yet."""
        return self._choices.get(replica, _NONE).get(name)

    def can_hold(self, replica: str, name: str) -> bool:
        """Whether a replica can run any form of what is under this name, as far as is known."""
        choice = self.choice(replica, name)
        return choice is None or bool(choice.flavour)

    def saw(self, name: str, held: Held) -> bool:
        """The replica answered and holds this; whether that is news."""
        before = self._seen[name]
        self._answered = True
        for slot, why in self.barred.on(name):
            if why != LOADING and slot[1] not in held.get(slot[0], ()):
                self.barred.take(name, slot)  # it is loaded anew, and looked at anew
        if before.is_up and before.held == held:
            return False
        since = before.since if before.is_up else self._clock()
        self._know(replace(before, state="up", held=held, why="", since=since))
        return True

    def lost(self, name: str, why: str) -> bool:
        """The replica did not answer; whether that is news."""
        before = self._seen[name]
        if before.state == "lost":
            return False
        self._know(replace(before, state="lost", why=why, since=self._clock(), self_managed=False))
        _drop(name, self.failures)  # it may come back as another process
        self.waiting.pop(name, None)
        return True

    def manages_itself(self, name: str) -> None:
        """The replica refuses load calls: what it holds is what there is."""
        self._know(replace(self._seen[name], self_managed=True))

    def _know(self, now: Observation) -> None:
        name = now.replica.name
        self.holding.put(self._seen[name], now)
        self._seen[name] = now

    def callable_on(self, physical_name: str, version: int) -> Set[str]:
        """The replicas that were last seen to hold a version, and that calls for it may go to."""
        slot = physical_name, version
        away = self._retired | self.barred.where(slot)
        away |= {name for name, slots in self._leaving.items() if slot in slots}
        return self.holding.of(*slot) - away

    def holders(
        self, physical_name: str, version: int, *pools: str, steers: bool = True
    ) -> tuple[str, ...]:
        """The replicas that may get calls for a version, by name.

        Those of its pools; until all of them that answer hold it, those elsewhere as well, which a
        model leaves when it moves to another pool. Without `steers` the busy ones count as well:
        calls of one sequence belong together.
        """
        up, having = self.holding.up, self.callable_on(physical_name, version)
        members = self.holding.members(pools)
        own = having & members
        lacking = (members & up) - own - self._retired
        if not own & up or any(self.can_hold(name, physical_name) for name in lacking):
            own = having
        present = own & up
        free = present - self.steered - self.joining if steers else present
        return self.holding.ordered(free or present or own)


def _drop(replica: str, known: dict[tuple[str, str], T]) -> None:
    for key in [key for key in known if key[0] == replica]:
        del known[key]
