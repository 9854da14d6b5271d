"""Resting: the rounds of one replica that can be left out, because nothing can have changed.

Most rounds find nothing to do, and in a large fleet they would be most of what the control plane
does. A round that has left nothing to do is not repeated

| before                                                         | such as                      |
|----------------------------------------------------------------|------------------------------|
| what it has read is another: what the replica holds, what is   | a version was published, or  |
| wanted of its pool, what is wanted elsewhere or nowhere        | the replica was restarted    |
| something there is barred, or it joins                         | it answers wrongly           |
| somebody asks for it                                           | `load_again`                 |
| half a minute has passed                                       | what nobody has thought of   |

Equal is what is the same object (`control/wanted.py`), so that it takes a moment to see.
"""

from collections.abc import Callable

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.observations import Observation

REPEATED = 30.0  # seconds


class Resting:
    """Of one replica. `clock`: monotonic seconds."""

    def __init__(
        self, name: str, fleet: Fleet, inventory: Inventory, *, clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._fleet = fleet
        self._inventory = inventory
        self._clock = clock
        self._read: tuple[object, ...] = ()  # by the round that left nothing to do
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<Resting {self._name} {'yes' if self._read else 'no'}>"

    def holds(self, seen: Observation) -> bool:
        """Whether a round would find what the last one has left: nothing to do."""
        if not self._read or self._clock() >= self._until:
            return False
        if self._name in self._fleet.joining or self._fleet.barred.has_any(self._name):
            return False
        now = self._reads(seen)
        return all(one is other for one, other in zip(now, self._read, strict=True))

    def begin(self) -> None:
        """Nothing is left to do, as far as steps and files go."""
        seen = self._fleet.observations[self._name]
        pool, failures = seen.replica.pool, self._fleet.failures
        wanted = self._inventory.for_pool(pool)
        leaves = seen.held.keys() & self._inventory.elsewhere(pool)
        if not leaves and not any((self._name, name) in failures for name in wanted):
            self._read, self._until = self._reads(seen), self._clock() + REPEATED

    def end(self) -> None:
        """The next round is taken."""
        self._read = ()

    def _reads(self, seen: Observation) -> tuple[object, ...]:
        inventory, pool = self._inventory, seen.replica.pool
        return (
            seen,
            inventory.for_pool(pool),
            inventory.removed,
            inventory.elsewhere(pool),
            inventory.server_settings,
        )
