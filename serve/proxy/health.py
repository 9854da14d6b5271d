"""Health: which replicas this worker avoids for a while, learned from its own attempts.

A replica that could not be reached is avoided for half a second, doubled with every further failure
up to ten seconds, then tried again by the next call. One that answered "unknown model" is avoided
for that version only: its other models keep flowing. Any success clears the name.
"""

from collections.abc import Callable, Collection

FIRST_PAUSE = 0.5  # seconds
LONGEST_PAUSE = 10.0
FORGOTTEN = 60.0  # seconds after which a pause that is over is no longer known


class Health:
    """Keeps a pause per replica and per (replica, target); while `pauses` is empty, all is well."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.pauses: dict[tuple[str, str], tuple[float, float]] = {}  # until, length; by target

    def __repr__(self) -> str:
        now = self._clock()
        away = sorted(key for key, (until, _) in self.pauses.items() if until > now)
        return f"<Health avoiding={away}>"

    def is_usable(self, replica: str, target: str = "") -> bool:
        """Whether the replica may be picked now, for this target (`model/version`)."""
        if not self.pauses:
            return True
        now = self._clock()
        return self._until(replica, "") <= now and (
            not target or self._until(replica, target) <= now
        )

    def avoided(self, target: str) -> Collection[str]:
        """The replicas that are not to be picked now, for this target; they may have left."""
        now, about = self._clock(), ("", target)
        pauses = self.pauses.items()
        return {name for (name, of), (until, _) in pauses if until > now and of in about}

    def failed(self, replica: str, target: str = "") -> None:
        """Avoid the replica; only for this target when one is named."""
        now = self._clock()
        until, length = self.pauses.get((replica, target), (0.0, 0.0))
        if until > now:
            return  # calls that failed together count once
        length = min(length * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        for key in [key for key, (end, _) in self.pauses.items() if end < now - FORGOTTEN]:
            del self.pauses[key]
        self.pauses[replica, target] = (now + length, length)

    def answered(self, replica: str, target: str = "") -> None:
        """The replica answered, and well if a target is named: forget what was held against it."""
        self.pauses.pop((replica, ""), None)
        self.pauses.pop((replica, target), None)

    def _until(self, replica: str, target: str) -> float:
        return self.pauses.get((replica, target), (0.0, 0.0))[0]
