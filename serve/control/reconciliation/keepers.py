"""The keepers of all replicas that there are: replicas come and go, and so do they."""

from collections.abc import Callable, Iterator

from serve.control.reconciliation.loans import Lending
from serve.control.reconciliation.reconciler import ReplicaKeeper


class Keepers:
    """One per replica, by its name. Who listens hears of the rounds of those who come later, too.

    It may be walked through while some come and go.
    """

    def __init__(self, *keepers: ReplicaKeeper) -> None:
        self._keepers: dict[str, ReplicaKeeper] = {}
        self._heard: list[Callable[[], None]] = []
        for keeper in keepers:
            self.add(keeper)

    def __repr__(self) -> str:
        return f"<Keepers {sorted(self._keepers)}>"

    def __iter__(self) -> Iterator[ReplicaKeeper]:
        return iter(tuple(self._keepers.values()))

    def __len__(self) -> int:
        return len(self._keepers)

    def __contains__(self, name: str) -> bool:
        return name in self._keepers

    def get(self, name: str) -> ReplicaKeeper | None:
        """The keeper of this replica; None when it has left."""
        return self._keepers.get(name)

    def lending(self, name: str) -> Lending | None:
        """What lends this replica; None when it has left."""
        keeper = self._keepers.get(name)
        return None if keeper is None else keeper.lending

    def add(self, keeper: ReplicaKeeper) -> None:
        """A replica is there."""
        self._keepers[keeper.name] = keeper
        for tell in self._heard:
            keeper.after_rounds(tell)

    def remove(self, name: str) -> None:
        """It has left. Who waits for its rounds looks again."""
        del self._keepers[name]
        for tell in self._heard:
            tell()

    def after_rounds(self, tell: Callable[[], None]) -> None:
        """Call this after each round of each of them."""
        self._heard.append(tell)
        for keeper in self:
            keeper.after_rounds(tell)

    def wake(self) -> None:
        """What is wanted may have changed: all of them look at once whether it has."""
        for keeper in self:
            keeper.nudge()
