"""Learning: what one replica bears, from how long its executions take.

ℓ(b) = a + c·b     from Triton's own counts, what is long ago weighs less
b*   = the largest batch whose caller meets the objective in the worst case: 2·ℓ(b) + d ≤ limit
μ    = instances · b* ÷ ℓ(b*), and never much above what replicas have really borne
"""

import math
from collections import deque
from collections.abc import Mapping

from serve.capacity.service import Decaying, Point, fitted

_ABOVE = 1.1  # times what was seen under load
_SEEN = 0.9  # quantile
_KEPT = 1800.0  # seconds


class Learned:
    """Of one model on one kind of replica.

    `limit`: the objective's, in seconds. `largest`: rows of a batch. `overhead`: seconds that a
    call takes besides its queue and its execution.
    """

    def __init__(
        self, limit: float, *, instances: int, largest: int, overhead: float = 0.0
    ) -> None:
        self._limit = limit
        self._instances = instances
        self._largest = max(1, largest)
        self._overhead = overhead
        self._executed = Decaying()
        self._borne: deque[tuple[float, float]] = deque()

    def __repr__(self) -> str:
        return f"<Learned {self._executed!r}>"

    def add(self, executions: Mapping[int, tuple[int, float]], at: float) -> None:
        """What rose: by rows, executions and the seconds of all; `at` is monotonic."""
        points = [
            Point(rows, seconds / count, count)
            for rows, (count, seconds) in executions.items()
            if count
        ]
        self._executed.add(points, at)

    def saturated(self, rate: float, waiting: float, at: float) -> None:
        """What a replica answered per second; it counts while a whole batch waits there."""
        if waiting >= self._largest:
            self._borne.append((at, rate))
        while self._borne and self._borne[0][0] < at - _KEPT:
            self._borne.popleft()

    def capacity(self, at: float) -> float | None:
        """Calls of one row per second; None where too little was executed."""
        service = fitted(self._executed.points(at))
        if service is None:
            return None
        most = self._largest
        if service.per_row > 0:
            allowed = ((self._limit - self._overhead) / 2 - service.fixed) / service.per_row
            most = max(1, min(most, math.floor(allowed + 1e-9)))
        found = self._instances * most / service.time(most)
        if self._borne:
            rates = sorted(rate for _, rate in self._borne)
            found = min(found, _ABOVE * rates[min(len(rates) - 1, int(_SEEN * len(rates)))])
        return found
