"""Health: which replicas this worker avoids for a while, learned from its own attempts.

A replica that could not be reached is avoided for half a second, doubled with every further failure
up to ten seconds, then tried again by the next call. One that answered "unknown model" is avoided
for that version only: its other models keep flowing. Any success clears the name.
"""

from collections.abc import Callable

FIRST_PAUSE = 0.5  # seconds
LONGEST_PAUSE = 10.0


class Health:
    """Keeps a pause per replica and per (replica, target)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pauses: dict[tuple[str, str], tuple[float, float]] = {}  # until, length

    def __repr__(self) -> str:
        now = self._clock()
        away = sorted(key for key, (until, _) in self._pauses.items() if until > now)
        return f"<Health avoiding={away}>"

    def is_usable(self, replica: str, target: str = "") -> bool:
        """Whether the replica may be picked now, for this target (`model/version`)."""
        if not self._pauses:
            return True
        now = self._clock()
        return self._until(replica, "") <= now and (
            not target or self._until(replica, target) <= now
        )

    def failed(self, replica: str, target: str = "") -> None:
        """Avoid the replica; only for this target when one is named."""
        now = self._clock()
        until, length = self._pauses.get((replica, target), (0.0, 0.0))
        if until > now:
            return  # calls that failed together count once
        length = min(length * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        self._pauses[replica, target] = (now + length, length)

    def succeeded(self, replica: str, target: str) -> None:
        """The replica answered: forget what was held against it."""
        if self._pauses:
            self._pauses.pop((replica, ""), None)
            self._pauses.pop((replica, target), None)

    def _until(self, replica: str, target: str) -> float:
        return self._pauses.get((replica, target), (0.0, 0.0))[0]
