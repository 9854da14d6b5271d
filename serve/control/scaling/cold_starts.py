"""Cold starts: how long it takes from the wish for a replica until it can be called.

Only those count that somebody wished for while we looked on: a replica that was there when the
control plane started, or that was lost and came back, tells nothing of that.
"""

import math
from collections import deque
from collections.abc import Callable, Collection

from serve.control.fleet import Fleet

USUAL = 60.0  # seconds, until one was seen
_KEPT = 20  # starts of a pool
_QUANTILE = 0.9


class ColdStarts:
    """By pool. `clock`: that of the fleet's times."""

    def __init__(self, fleet: Fleet, *, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._took: dict[str, deque[float]] = {}
        self._known: set[tuple[str, float]] = set()  # replicas that are ready, and when they joined

    def __repr__(self) -> str:
        return f"<ColdStarts { ({pool: len(took) for pool, took in self._took.items()}) }>"

    def look(self, ready: Collection[str]) -> None:
        """These replicas can be called now; those of them that are new have started."""
        now = self._clock()
        seen = self._fleet.observations
        found: set[tuple[str, float]] = set()
        for name in ready:
            one = seen[name]
            if one.joined_at is None or one.wished_at is None:
                continue
            found.add((name, one.joined_at))
            if (name, one.joined_at) not in self._known:
                took = self._took.setdefault(one.replica.pool, deque(maxlen=_KEPT))
                took.append(max(0.0, now - one.wished_at))
        joined = {(name, one.joined_at) for name, one in seen.items() if one.joined_at is not None}
        self._known = (self._known | found) & joined

    def of(self, pool: str) -> float:
        """The 90th percentile of the last ones, in seconds."""
        took = sorted(self._took.get(pool, ()))
        return took[math.ceil(_QUANTILE * len(took)) - 1] if took else USUAL
