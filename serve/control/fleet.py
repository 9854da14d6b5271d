"""The fleet: what every replica was last seen to hold, and why it does not hold more.

A replica that cannot be reached keeps what it was last seen to hold on record. As long as some
other replica holds a version, the lost one gets no calls; when no other does, its last known state
stays in force, because a control plane that has lost sight of everything must not switch everything
off.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from serve.core.replicas import Replica

Held = Mapping[str, tuple[int, ...]]  # model name in Triton → ready versions, ascending


@dataclass(frozen=True, slots=True)
class Observation:
    """One replica as last seen. `since` is when its state last changed, in monotonic seconds."""

    replica: Replica
    state: str = "unseen"  # unseen, up, lost
    held: Held = field(default_factory=lambda: MappingProxyType({}))
    why: str = ""
    since: float = 0.0
    self_managed: bool = False

    @property
    def is_up(self) -> bool:
        """Whether the replica answered when it was last asked."""
        return self.state == "up"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model could not be loaded on a replica, and when it is tried again (monotonic)."""

    reason: str
    about: tuple[object, ...]
    tries: int
    retry_at: float


class Fleet:
    """All replicas and what is known of them; changes are told to one listener."""

    def __init__(self, replicas: tuple[Replica, ...], *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen = {replica.name: Observation(replica) for replica in replicas}
        self._answered = False
        self.failures: dict[tuple[str, str], Failure] = {}

    def __repr__(self) -> str:
        states = {name: seen.state for name, seen in self._seen.items()}
        return f"<Fleet {states}>"

    @property
    def observations(self) -> Mapping[str, Observation]:
        """Every replica by name."""
        return self._seen

    @property
    def is_known(self) -> bool:
        """Whether every replica was looked at, and at least one has answered since the start."""
        states = [seen.state for seen in self._seen.values()]
        return "unseen" not in states and self._answered

    @property
    def pools(self) -> frozenset[str]:
        """The pools that have at least one replica."""
        return frozenset(seen.replica.pool for seen in self._seen.values())

    def saw(self, name: str, held: Held) -> bool:
        """The replica answered and holds this; whether that is news."""
        before = self._seen[name]
        self._answered = True
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
        for key in [key for key in self.failures if key[0] == name]:
            del self.failures[key]  # it may come back as another process
        return True

    def manages_itself(self, name: str) -> None:
        """The replica refuses load calls: what it holds is what there is."""
        self._seen[name] = replace(self._seen[name], self_managed=True)

    def holders(self, physical_name: str, version: int, pool: str) -> tuple[str, ...]:
        """The replicas that may get calls for a version, by name."""
        having = [
            seen
            for seen in self._seen.values()
            if seen.replica.pool == pool and version in seen.held.get(physical_name, ())
        ]
        present = [seen for seen in having if seen.is_up]
        return tuple(sorted(seen.replica.name for seen in present or having))
