"""Learning: what one replica bears, from how long its executions take.

ℓ(b) = a + c·b     from Triton's own counts, what is long ago weighs less
b*   = the largest batch whose caller meets the objective in the worst case: 2·ℓ(b) + d ≤ limit
μ    = instances · b* ÷ ℓ(b*), and never much above what replicas have really borne
"""

import math
from collections import deque
from collections.abc import Mapping

from serve.capacity.service import Decaying, ExecutionPoint, at_one_size, fitted

_ABOVE = 1.1  # times what was seen under load
_SEEN = 0.9  # quantile
_KEPT = 1800.0  # seconds
_BEYOND = 4  # times the largest batch that was seen: further the line is a guess


class Learned:
    """Of one model on one kind of replica.

    `limit`: the objective's, in seconds. `largest`: rows of a batch. `overhead`: seconds that a
    call takes besides its queue and its execution. All four may be set anew at any time.
    """

    def __init__(
        self, limit: float, *, instances: int, largest: int, overhead: float = 0.0
    ) -> None:
        self.limit = limit
        self.instances = instances
        self.largest = max(1, largest)
        self.overhead = overhead
        self._executed = Decaying()
        self._borne: deque[tuple[float, float]] = deque()

    def __repr__(self) -> str:
        return f"<Learned {self._executed!r}>"

    def add(self, executions: Mapping[int, tuple[int, float]], at: float) -> None:
        """What rose: by rows, executions and the seconds of all; `at` is monotonic."""
        points = [
            ExecutionPoint(rows, seconds / count, count)
            for rows, (count, seconds) in executions.items()
            if count
        ]
        self._executed.add(points, at)

    def saturated(self, rate: float, waiting: float, at: float) -> None:
        """What a replica answered per second; it counts while a whole batch waits there."""
        if waiting >= self.largest:
            self._borne.append((at, rate))
        while self._borne and self._borne[0][0] < at - _KEPT:
            self._borne.popleft()

    def capacity(self, at: float) -> float | None:
        """Calls of one row per second; None where too little was executed.

        With executions of one size only it is what those alone say, which larger ones can exceed.
        """
        points = self._executed.points(at)
        service = fitted(points)
        if service is None:
            alone = at_one_size(points)
            return (
                None if alone is None else self._borne_at(self.instances * points[0].rows / alone)
            )
        most = min(self.largest, _BEYOND * max(point.rows for point in points))
        if service.per_row > 0:
            allowed = ((self.limit - self.overhead) / 2 - service.fixed) / service.per_row
            most = max(1, min(most, math.floor(allowed + 1e-9)))
        return self._borne_at(self.instances * most / service.time(most))

    def shortest(self, at: float) -> float | None:
        """Seconds of the smallest execution that was seen; None where too little was executed."""
        points = self._executed.points(at)
        service = fitted(points)
        if service is None:
            return at_one_size(points)
        return service.time(min(point.rows for point in points))

    def _borne_at(self, found: float) -> float:
        """No more than a little above what was seen under load."""
        if not self._borne:
            return found
        rates = sorted(rate for _, rate in self._borne)
        return min(found, _ABOVE * rates[min(len(rates) - 1, int(_SEEN * len(rates)))])
