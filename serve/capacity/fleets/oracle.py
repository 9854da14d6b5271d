"""The oracle: it knows what comes, so nobody can do with much less; everybody is told beside it."""

import math
from collections.abc import Sequence

import numpy as np

from serve.capacity.fleets.loads import Floats
from serve.capacity.fleets.seen import SeenTick, SimulatedServer

_SMOOTHED = 30  # seconds; bursts that are shorter nobody follows


class Oracle:
    """`plan`: replicas wished for, second by second."""

    def __init__(self, plan: Sequence[int]) -> None:
        self._plan = plan

    def __repr__(self) -> str:
        return f"<Oracle for {len(self._plan)} s, at most {max(self._plan)} replicas>"

    @classmethod
    def knowing(
        cls,
        times: Floats,
        seconds: float,
        server: SimulatedServer,
        capacity: float,
        *,
        least: int = 1,
    ) -> "Oracle":
        """As few as bear what comes; replicas are wished for a cold start before.

        `capacity`: what it lets a replica bear, in calls per second.
        """
        count = math.ceil(seconds) + 1
        rates = np.bincount(np.floor(times).astype(np.int64), minlength=count).astype(float)
        smooth = np.convolve(rates, np.ones(_SMOOTHED) / _SMOOTHED, mode="same")
        needs = np.ceil(np.maximum(smooth, 0) / capacity)
        ahead = int(server.cold_start) + 1
        plan = [max(least, int(needs[at : at + ahead + 1].max(initial=0))) for at in range(count)]
        return cls(plan)

    def decide(self, seen: SeenTick) -> int:
        """What will be needed when it has started."""
        return self._plan[min(int(seen.at), len(self._plan) - 1)]
