"""Observations: what is known of one replica, and of what is under a name in Triton there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serve.core.replicas import Replica

Held = Mapping[str, tuple[int, ...]]  # model name in Triton → ready versions, ascending


@dataclass(frozen=True, slots=True)
class Observation:
    """One replica as last seen. `since` is when its state last changed, in monotonic seconds.

    `joined_at` is when it joined, `wished_at` when somebody began to start it; None for those that
    were there at the start.
    """

    replica: Replica
    state: str = "unseen"  # unseen, up, lost
    held: Held = field(default_factory=lambda: MappingProxyType({}))
    why: str = ""
    since: float = 0.0
    self_managed: bool = False
    joined_at: float | None = None
    wished_at: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether the replica answered when it was last asked."""
        return self.state == "up"


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a model could not be loaded on a replica, and when it is tried again (monotonic)."""

    reason: str
    about: tuple[object, ...]
    tries: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class FlavourChoice:
    """In which flavour a replica should hold what is under a name in Triton; empty is in none.

    `lacking` says of flavours what the machine lacks for them, `failed` how they have failed there.
    """

    flavour: str
    lacking: Mapping[str, str]
    failed: Mapping[str, str]
