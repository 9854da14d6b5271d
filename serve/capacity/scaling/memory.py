"""The memory of a pool: what it needed in the last hour, and what of that is worth keeping ready.

A replica that is kept idle costs its time; one that is missing when calls come back costs as much
capacity for as long as a start takes. So a level of replicas is kept when, over the last hour,

    Σ min(start, how long it was needed), each time that it was     what keeping it would have saved
    ≥ `PRICE` · the time for which it was not needed                what keeping it would have cost

So what comes back once in start ÷ `PRICE`, twenty starts, stays. What is kept is busy all the time
when it is needed again, until more have started.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from serve.capacity.scaling.demand import whole

SLOT, REMEMBERED = 15.0, 3600.0  # seconds
PRICE = 0.05  # of capacity that is missing, for as much that is idle
_SLOTS = int(REMEMBERED // SLOT)


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """The most replicas that were busy all the time, in each slot; the last slot has `number`."""

    number: int = 0
    needs: tuple[float, ...] = ()

    def noted(self, at: float, need: float) -> "DemandMemory":
        """One more need, at a time in seconds; slots in which nobody looked were like it."""
        number = int(at // SLOT)
        passed = number - self.number
        if not self.needs or passed >= _SLOTS:
            return DemandMemory(number, (need,))
        if passed <= 0:
            return replace(self, needs=(*self.needs[:-1], max(self.needs[-1], need)))
        return DemandMemory(number, (*self.needs, *(need,) * passed)[-_SLOTS:])

    @property
    def seconds(self) -> float:
        """How long it goes back."""
        return SLOT * len(self.needs)

    def most(self, seconds: float) -> float:
        """The most of the last seconds, the present slot included; 0 without any."""
        return max(self.needs[-1 - int(seconds // SLOT) :], default=0.0)

    def kept(self, least: int, start: float) -> int:
        """Replicas to keep ready, `least` or more; `start`: seconds that one takes."""
        wholes = [whole(busy) for busy in self.needs]
        for level in sorted({need for need in wholes if need > least}, reverse=True):
            saved = sum(min(start, seconds) for seconds in _runs(wholes, level))
            unused = SLOT * sum(need < level for need in wholes)
            if saved >= PRICE * unused:
                return level
        return least


def _runs(needs: list[int], level: int) -> Iterator[float]:
    """For how many seconds it was needed, each time."""
    for is_needed, run in groupby(needs, lambda need: need >= level):
        if is_needed:
            yield SLOT * sum(1 for _ in run)
