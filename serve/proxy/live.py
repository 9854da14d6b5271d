"""Live: the one reference to the snapshot in force; swapped whole, never edited."""

from serve.core.errors import NoSnapshot
from serve.core.snapshot import Snapshot


class LiveSnapshot:
    """Holds the snapshot that calls read. Generations never go backwards here."""

    def __init__(self) -> None:
        self.current: Snapshot | None = None  # None before the first one

    def __repr__(self) -> str:
        return f"<LiveSnapshot generation={self.generation}>"

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot in force; `NoSnapshot` before the first one."""
        if self.current is None:
            raise NoSnapshot
        return self.current

    @property
    def generation(self) -> int:
        """The generation in force, 0 before the first snapshot."""
        return self.current.generation if self.current else 0

    def swap(self, snapshot: Snapshot) -> bool:
        """Put a newer snapshot in force; an older one or the same changes nothing."""
        if snapshot.generation <= self.generation:
            return False
        self.current = snapshot
        return True
