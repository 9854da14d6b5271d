"""Health: which replicas this worker avoids for a while, learned from its own attempts.

A replica that could not be reached is avoided for half a second, doubled with every further failure
up to ten seconds, then tried again by the next call. One that answered "unknown model" is avoided
for that version only: its other models keep flowing. Any success clears the name.

A replica that can be reached and fails its calls is no matter of pauses: see `outliers`.
"""

from collections.abc import Callable, Collection, Iterable

from serve.proxy.outliers import Outliers

FIRST_PAUSE = 0.5  # seconds
LONGEST_PAUSE = 10.0
FORGOTTEN = 60.0  # seconds after which a pause that is over is no longer known


class Health:
    """Keeps a pause per replica and per (replica, target); while `pauses` is empty, all is well."""

    def __init__(self, clock: Callable[[], float], draw: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self.outliers = Outliers(clock, draw)
        self.pauses: dict[tuple[str, str], tuple[float, float]] = {}  # until, length; by target

    def __repr__(self) -> str:
        now = self._clock()
        away = sorted(key for key, (until, _) in self.pauses.items() if until > now)
        return f"<Health avoiding={away} ejected={self.outliers.ejected}>"

    def is_usable(self, replica: str, target: str = "") -> bool:
        """Whether the replica may be picked now, for this target (`model/version`)."""
        if self.outliers.rows and self.outliers.is_ejected(replica, target):
            return False
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
        found = {name for (name, of), (until, _) in pauses if until > now and of in about}
        return found | self.outliers.avoided(target) if self.outliers.rows else found

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

    def keep(self, replicas: Iterable[str]) -> None:
        """Forget all other replicas: they have left, or are others by the same name."""
        kept = set(replicas)
        self.pauses = {key: pause for key, pause in self.pauses.items() if key[0] in kept}
        self.outliers.keep(kept)

    def _until(self, replica: str, target: str) -> float:
        return self.pauses.get((replica, target), (0.0, 0.0))[0]
