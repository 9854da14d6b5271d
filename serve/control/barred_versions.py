"""Which versions get no calls on which replicas, and why: found by version, and by replica."""

from collections.abc import Iterator, Set

Held = tuple[str, int]  # a name in Triton, a version


class Barring:
    """As many entries as something is barred; looking at one costs nothing for the others."""

    def __init__(self) -> None:
        self._why: dict[Held, dict[str, str]] = {}  # by version: replica → why
        self._slots: dict[str, set[Held]] = {}  # by replica

    def __repr__(self) -> str:
        return f"<Barring {sum(map(len, self._slots.values()))}>"

    def put(self, replica: str, slot: Held, why: str) -> None:
        """From now on, or for another reason."""
        self._why.setdefault(slot, {})[replica] = why
        self._slots.setdefault(replica, set()).add(slot)

    def take(self, replica: str, slot: Held) -> None:
        """No longer, if it was."""
        if slot not in self._slots.get(replica, ()):
            return
        del self._why[slot][replica]
        if not self._why[slot]:
            del self._why[slot]
        self._slots[replica].discard(slot)
        if not self._slots[replica]:
            del self._slots[replica]

    def drop(self, replica: str) -> None:
        """Nothing on this replica any more."""
        for slot in tuple(self._slots.get(replica, ())):
            self.take(replica, slot)

    def has(self, replica: str, slot: Held) -> bool:
        """Whether this version is barred there."""
        return slot in self._slots.get(replica, ())

    def has_any(self, replica: str) -> bool:
        """Whether any version is barred there."""
        return replica in self._slots

    def on(self, replica: str) -> Iterator[tuple[Held, str]]:
        """What is barred on a replica, by name and version, and why."""
        for slot in sorted(self._slots.get(replica, ())):
            yield slot, self._why[slot][replica]

    def where(self, slot: Held) -> Set[str]:
        """The replicas on which this version is barred."""
        return self._why.get(slot, {}).keys()

    def because_of(self, why: str) -> frozenset[Held]:
        """The versions that are barred for this reason anywhere."""
        return frozenset(slot for slot, known in self._why.items() if why in known.values())
