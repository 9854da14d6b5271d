"""Who holds what: the names of replicas by version, by pool and by state.

A snapshot is compiled anew at every piece of news. With thousands of replicas it cannot look at
each of them for each version; so this is kept while news come, a replica at a time, and compiling
is a few operations on sets.
"""

from collections.abc import Iterable, Mapping, Set

from serve.control.observations import Observation

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
