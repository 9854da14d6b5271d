"""The open loop: calls start when they are meant to, whatever has become of those before them.

An arrival for which there is no connection waits, and its latency grows meanwhile, as its user's
would. In a lane with sequences an arrival is a whole sequence: each of its calls is meant to start
when the one before it ends, even where that one failed, so that the server hears of the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from serve.load.engine.lane_calls import Body, LaneCalls


class OpenLoop:
    """`starts`: ascending, by the clock. `choice`: the lane of each arrival, without end."""

    def __init__(
        self, lanes: Sequence[LaneCalls], *, starts: Iterator[float], choice: Iterator[LaneCalls]
    ) -> None:
        self._lanes = lanes
        self._starts = starts
        self._choice = choice
        self._due = next(starts, math.inf)

    def __repr__(self) -> str:
        return f"<OpenLoop, next at {self._due:.6f}>"

    def wake(self, now: float) -> float:
        """Start all that is due, in order; returns when the next will be, `inf` after the last."""
        while self._due <= now:
            due, self._due = self._due, next(self._starts, math.inf)
            lane = next(self._choice)
            if lane.has_sequences:
                _follow(lane, lane.bodies(), due)
            else:
                lane.make_next(due)
        return self._due

    def stop(self, now: float) -> None:
        """The run's seconds are over: what still waits never starts."""
        self.wake(now)
        for each in self._lanes:
            each.stop(now)


def _follow(lane: LaneCalls, bodies: Iterator[Body], intended: float) -> None:
    found = next(bodies, None)
    if found is not None:
        lane.make(intended, *found, lambda _, ended: _follow(lane, bodies, ended))
