"""Looks: how often replicas are asked what they hold, and how many at one time.

A look costs the control plane a fraction of a millisecond of CPU time, whatever a replica holds. So
a fleet that grows is looked at in turn, and no faster than `PER_SECOND` replicas a second:

    seconds between two looks at one replica = max(tick, replicas / PER_SECOND)

Nobody's calls wait for a look: the data plane avoids a replica that fails on its own.
"""

import asyncio
from collections.abc import Callable

PER_SECOND = 400.0
AT_ONCE = 64  # looks; more would wait for one another's CPU time, and be late
_ROUNDS = 5.0  # seconds: no two rounds at one replica are further apart, for loads are tried again


class Looks:
    """The turns of all keepers. `replicas` gives how many there are; `tick` is seconds."""

    def __init__(self, replicas: Callable[[], int], *, tick: float) -> None:
        self._replicas = replicas
        self._tick = tick
        self.turn = asyncio.Semaphore(AT_ONCE)

    def __repr__(self) -> str:
        return f"<Looks every {self.pause:g} s>"

    @property
    def pause(self) -> float:
        """Seconds between two looks at one replica."""
        return max(self._tick, self._replicas() / PER_SECOND)

    @property
    def rounds(self) -> float:
        """Seconds between two rounds at one replica, if nobody wakes its keeper."""
        return min(2 * self.pause, max(2 * self._tick, _ROUNDS))
