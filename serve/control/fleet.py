"""The fleet: what every replica was last seen to hold, and why it does not hold more.

A replica that cannot be reached keeps what it was last seen to hold on record. As long as some
other replica holds a version, the lost one gets no calls; when no other does, its last known state
stays in force, because a control plane that has lost sight of everything must not switch everything
off.

Replicas come and go meanwhile: `join`, and `retire` before `remove`. One that is retired gets no
calls, not even those that nobody else can answer.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from serve.control.observations import Choice, Failure, Held, Observation
from serve.core.replicas import Replica

Slot = tuple[str, str, int]  # a replica, a name in Triton, a version
LOADING = "it is being loaded"  # why a version is barred that is not yet known to be right


class Fleet:
    """All replicas and what is known of them; changes are told to one listener."""

    def __init__(self, replicas: tuple[Replica, ...], *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen = {replica.name: Observation(replica) for replica in replicas}
        self._first = frozenset(self._seen)  # those that were there at the start, and still are
        self._answered = not replicas
        self._retired: set[str] = set()
        self._barred: dict[Slot, str] = {}
        self._leaving: set[Slot] = set()
        self.steered: set[str] = set()  # replicas that get calls only where nobody else can
        self.joining: set[str] = set()  # the same, because they came empty and lack something yet
        self.waiting: dict[str, str] = {}  # replicas that may not load now, and why
        self.failures: dict[tuple[str, str], Failure] = {}
        self.flavours: dict[tuple[str, str], str] = {}  # in force, by replica and name in Triton
        self._choices: dict[tuple[str, str], Choice] = {}
        self._trying: dict[str, tuple[str, str]] = {}  # name in Triton → revision, replica

    def __repr__(self) -> str:
        states = {name: seen.state for name, seen in self._seen.items()}
        return f"<Fleet {states}>"

    @property
    def observations(self) -> Mapping[str, Observation]:
        """Every replica by name."""
        return self._seen

    @property
    def is_known(self) -> bool:
        """Whether all that were there at the start were looked at, and one has answered since.

        Where there was none at the start, that is known. Who joins later is not waited for.
        """
        states = [self._seen[name].state for name in self._first]
        return "unseen" not in states and self._answered

    @property
    def pools(self) -> frozenset[str]:
        """The pools that have at least one replica."""
        return frozenset(seen.replica.pool for seen in self._seen.values())

    @property
    def staying(self) -> Mapping[str, Replica]:
        """The replicas by name, without those that are retired."""
        found = self._seen.items()
        return {name: seen.replica for name, seen in found if name not in self._retired}

    def in_pool(self, *pools: str) -> tuple[str, ...]:
        """The replicas of these pools, those included that do not answer, but no retired ones."""
        return tuple(name for name, replica in self.staying.items() if replica.pool in pools)

    def is_free(self, name: str) -> bool:
        """Whether the replica answers and stays, and calls are not steered around it."""
        return self.is_present(name) and not self._is_busy(name)

    def is_present(self, name: str) -> bool:
        """Whether the replica answers, and stays."""
        return not self.is_retired(name) and self._seen[name].is_up

    def is_retired(self, name: str) -> bool:
        """Whether it is about to leave, or has left."""
        return name in self._retired or name not in self._seen

    def join(self, replica: Replica, wished_at: float | None = None) -> None:
        """There is one more; nothing is known of it yet. `wished_at`: monotonic seconds."""
        now = self._clock()
        one = Observation(replica, since=now, joined_at=now, wished_at=wished_at)
        self._seen = {**self._seen, replica.name: one}  # who walks through the old one goes on

    def retire(self, name: str) -> None:
        """It is about to leave: no calls go there, even if nobody else can answer them."""
        self._retired.add(name)
        self._trying = {key: one for key, one in self._trying.items() if one[1] != name}

    def take_back(self, name: str) -> None:
        """It stays after all."""
        self._retired.discard(name)

    def remove(self, name: str) -> None:
        """It is gone, and with it all that was known of it."""
        self._seen = {one: seen for one, seen in self._seen.items() if one != name}
        self._first -= {name}
        self._answered |= not self._first
        self.left(name)
        self._drop(name, self._barred, self._choices, self.failures, self.flavours)
        for names in (self._retired, self.steered, self.joining):
            names.discard(name)
        self.waiting.pop(name, None)

    def _drop(self, name: str, *known: dict[Any, Any]) -> None:
        """Forget what is known of a replica; its name is the first part of the keys."""
        for one in known:
            for key in [key for key in one if key[0] == name]:
                del one[key]

    def _is_busy(self, name: str) -> bool:
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
        seen, slot = self._seen[replica], (replica, name, version)
        is_held = seen.is_up and version in seen.held.get(name, ()) and replica not in self._retired
        return is_held and slot not in self._barred and slot not in self._leaving

    def bar(self, replica: str, name: str, versions: Iterable[int], why: str) -> None:
        """No calls go to these versions there, even if nobody else can answer them."""
        for version in versions:
            self._barred[replica, name, version] = why

    def admit(self, replica: str, name: str, version: int) -> None:
        """The version answers rightly there, as far as anybody can tell."""
        self._barred.pop((replica, name, version), None)

    def leave(self, replica: str, name: str, versions: Iterable[int]) -> None:
        """These versions are about to go there, whatever becomes wanted meanwhile: no calls."""
        self._leaving |= {(replica, name, version) for version in versions}

    def left(self, replica: str) -> bool:
        """What was to go there has gone, or has not and is held as before; whether any was."""
        going = {slot for slot in self._leaving if slot[0] == replica}
        self._leaving -= going
        return bool(going)

    def wrong(self, replica: str) -> Mapping[str, Mapping[int, str]]:
        """The versions that answer wrongly on a replica, and what is wrong, by name in Triton."""
        found: dict[str, dict[int, str]] = {}
        for (where, name, version), why in self._barred.items():
            if where == replica and why != LOADING:
                found.setdefault(name, {})[version] = why
        return found

    def loading(self, replica: str, name: str) -> tuple[int, ...]:
        """The versions that are barred until it is known whether they are right."""
        return tuple(
            version
            for (where, one, version), why in self._barred.items()
            if where == replica and one == name and why == LOADING
        )

    @property
    def being_loaded(self) -> frozenset[tuple[str, int]]:
        """The names in Triton and versions that some replica loads, or has not proven yet."""
        return frozenset(
            (name, version) for (_, name, version), why in self._barred.items() if why == LOADING
        )

    def unproven(self, replica: str) -> frozenset[str]:
        """The names in Triton under which something is so barred there."""
        return frozenset(
            name
            for (where, name, _), why in self._barred.items()
            if (where, why) == (replica, LOADING)
        )

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

    def choose(self, replica: str, choices: Mapping[str, Choice]) -> None:
        """In which flavours a replica should hold what has flavours, by name in Triton."""
        self._drop(replica, self._choices)
        self._choices |= {(replica, name): one for name, one in choices.items()}

    def choice(self, replica: str, name: str) -> Choice | None:
        """What was chosen; None for what has no flavours, or was not looked at yet."""
        return self._choices.get((replica, name))

    def can_hold(self, replica: str, name: str) -> bool:
        """Whether a replica can run any form of what is under this name, as far as is known."""
        choice = self.choice(replica, name)
        return choice is None or bool(choice.flavour)

    def saw(self, name: str, held: Held) -> bool:
        """The replica answered and holds this; whether that is news."""
        before = self._seen[name]
        self._answered = True
        for slot in [one for one in self._barred if one[0] == name]:
            if self._barred[slot] != LOADING and slot[2] not in held.get(slot[1], ()):
                del self._barred[slot]  # it is loaded anew, and looked at anew
        if before.is_up and before.held == held:
            return False
        since = before.since if before.is_up else self._clock()
        self._seen[name] = replace(before, state="up", held=held, why="", since=since)
        return True

    def lost(self, name: str, why: str) -> bool:
        """The replica did not answer; whether that is news."""
        before = self._seen[name]
        if before.state == "lost":
            return False
        self._seen[name] = replace(
            before, state="lost", why=why, since=self._clock(), self_managed=False
        )
        self._drop(name, self.failures)  # it may come back as another process
        self.waiting.pop(name, None)
        return True

    def manages_itself(self, name: str) -> None:
        """The replica refuses load calls: what it holds is what there is."""
        self._seen[name] = replace(self._seen[name], self_managed=True)

    def holders(
        self, physical_name: str, version: int, *pools: str, steers: bool = True
    ) -> tuple[str, ...]:
        """The replicas that may get calls for a version, by name.

        Those of its pools; until all of them that answer hold it, those elsewhere as well, which a
        model leaves when it moves to another pool. Without `steers` the busy ones count as well:
        calls of one sequence belong together.
        """
        away = self._barred.keys() | self._leaving
        having = [
            seen
            for seen in self._seen.values()
            if version in seen.held.get(physical_name, ())
            and seen.replica.name not in self._retired
            and (seen.replica.name, physical_name, version) not in away
        ]
        own = [seen for seen in having if seen.replica.pool in pools]
        here = {seen.replica.name for seen in own if seen.is_up}
        there = {one for one in self.in_pool(*pools) if self.can_hold(one, physical_name)}
        if not here or any(self._seen[name].is_up for name in there - here):
            own = having
        present = [seen for seen in own if seen.is_up]
        free = [seen for seen in present if not steers or not self._is_busy(seen.replica.name)]
        return tuple(sorted(seen.replica.name for seen in free or present or own))
