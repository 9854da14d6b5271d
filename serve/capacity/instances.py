"""Instances that share processors: the more of them are busy, the slower all of them are.

All executions go on at the same pace, 1 ÷ slowdown(busy). So one clock of work is enough: it runs
at that pace, an execution ends when the clock has gone on by its duration, and who started with
less work left ends first, whatever starts meanwhile.
"""

import heapq
import math

from serve.capacity.service import ServiceTime


class Instances:
    """`count` instances on a timeline; `now` only ever grows. Times in seconds."""

    def __init__(self, count: int, service: ServiceTime) -> None:
        self.now = 0.0
        self._count = count
        self._slowed = [service.slowed(busy) for busy in range(count + 1)]
        self._work = 0.0  # the clock of work
        self._running: list[tuple[float, int, int]] = []  # work at its end, first and last call

    def __repr__(self) -> str:
        return f"<Instances {len(self._running)} of {self._count} busy at {self.now:.6f} s>"

    @property
    def is_free(self) -> bool:
        """Whether one of them could start something."""
        return len(self._running) < self._count

    @property
    def next_end(self) -> float:
        """When the next execution ends if nothing starts before; `inf` when nothing runs."""
        running = self._running
        if not running:
            return math.inf
        return self.now + (running[0][0] - self._work) * self._slowed[len(running)]

    def advance(self, to: float) -> None:
        """Let time pass; not beyond `next_end`."""
        if to > self.now:
            self._work += (to - self.now) / self._slowed[len(self._running)]
            self.now = to

    def start(self, duration: float, first: int, last: int) -> None:
        """Start an execution of the calls `first` up to `last`; alone it would take `duration`."""
        heapq.heappush(self._running, (self._work + duration, first, last))

    def finish(self) -> tuple[int, int]:
        """Go to the next end; the calls that are answered there."""
        self.now = self.next_end
        self._work, first, last = heapq.heappop(self._running)
        return first, last
