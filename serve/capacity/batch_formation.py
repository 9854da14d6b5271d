"""How Triton forms batches where a delay or preferred sizes are set.

Triton's batcher is a thread that sleeps, and much follows from what wakes it. Read off
`dynamic_batch_scheduler.cc`, `rate_limiter.cc` and `instance_queue.cc` (2.51 to 2.60 alike):

    A batch is formed ahead, also while all instances are busy, and waits in a queue of at most two
    batches per instance. While it waits it is open: calls may still join it.
    preferred sizes      none means: the largest batch is the preferred one
    delay 0              the best preferred size that the waiting calls can make goes off and is
                         closed; without one all of them go off, and the batch stays open
    a delay              a preferred size goes off at once; else the batch goes off when its oldest
                         call has waited for so long, or when no more fits
    what wakes it        a call, when the waiting rows reach the next preferred size or an instance
                         has taken the batch; an instance that takes a batch; the delay's end

So with a delay a batch that went off early is hardly ever joined: the calls behind it are below the
preferred size and wake nobody. On a busy instance a call then waits for one execution more than
without a delay, where everything that waits goes along.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from serve.capacity.setup import BatchSetup

_NAP = 0.5  # seconds; the batcher looks again, whatever happens


class Batch:
    """The calls `first` up to `last` (without it), which are `rows` rows."""

    __slots__ = ("first", "last", "rows")

    def __init__(self, first: int) -> None:
        self.first = self.last = first
        self.rows = 0


class Batcher:
    """The batcher's state; `arrivals` ascending, in seconds, `ends[i]` rows up to call i."""

    def __init__(self, setup: BatchSetup, arrivals: Sequence[float], ends: Sequence[int]) -> None:
        self._most = setup.max_batch_size
        self._delay = setup.delay
        self._preferred = setup.preferred or (setup.max_batch_size,)
        self._room = 2 * setup.instances
        self._arrivals = arrivals
        self._ends = ends  # ends[0] is 0
        self.arrived = 0  # calls
        self._formed = 0  # calls that are in a batch
        self._batches: deque[Batch] = deque()  # formed, and not yet taken
        self._open: Batch | None = None  # the one that can still grow
        self._begins = True  # a new batch: the last one is closed, or taken
        self._wakes_at_rows = 0
        self.wakes_at = math.inf

    def __repr__(self) -> str:
        waiting = self.arrived - self._formed
        return f"<Batcher {waiting} calls wait, {len(self._batches)} batches are formed>"

    def arrive(self, now: float) -> None:
        """The next call is there."""
        self.arrived += 1
        rows = self._ends[self.arrived] - self._ends[self._formed]
        has_room = len(self._batches) < self._room
        if has_room and (self._begins or rows >= self._wakes_at_rows):
            self.look(now)

    def look(self, now: float) -> None:
        """Wake up, form what can be formed, and sleep again."""
        while True:
            if self._begins:
                self._begins, self._open, self._wakes_at_rows = False, None, 0
            if self._formed == self.arrived or len(self._batches) >= self._room:
                self.wakes_at = now + _NAP
                return
            wait = self._form(now)
            if wait > 0:
                self.wakes_at = now + wait
                return

    def take(self, now: float) -> Batch | None:
        """An instance is free: the batch that it takes, if there is one."""
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._begins |= batch is self._open
        while self._delay > 0 and self._batches:  # what is old goes along where it fits
            behind = self._batches[0]
            if now - self._arrivals[behind.first] <= self._delay:
                break
            self._begins |= behind is self._open  # closed, even where it does not fit
            if batch.rows + behind.rows > self._most:
                break
            self._batches.popleft()
            batch.last, batch.rows = behind.last, batch.rows + behind.rows
        return batch

    def _form(self, now: float) -> float:
        """Put waiting calls into the open batch; or seconds to wait for more of them."""
        batch = self._open or Batch(self._formed)
        start = self._ends[self._formed] - batch.rows
        best, is_full = self._best(start)
        fitting = min(self.arrived, bisect_right(self._ends, start + self._most) - 1)
        if fitting == self._formed and batch.rows == 0:
            fitting += 1  # a call larger than all batches: Triton would have refused it
        age = now - self._arrivals[self._formed]
        is_late = 0 < self._delay <= age + 1e-12
        if best > self._formed and not is_late:
            self._join(batch, best, is_closed=is_full or self._delay == 0)
            return 0.0
        rows = self._ends[fitting] - start
        if fitting < self.arrived or rows >= self._preferred[-1]:
            self._join(batch, fitting, is_closed=True)
            return 0.0
        if is_late or self._delay == 0:
            self._join(batch, fitting, is_closed=is_full)
            return 0.0
        above = [size for size in self._preferred if size > rows]
        self._wakes_at_rows = (above or self._preferred)[0] - batch.rows
        if batch.rows and not is_full and batch.rows not in self._preferred:
            self._join(batch, fitting, is_closed=False)
            return 0.0
        return self._delay - age

    def _best(self, start: int) -> tuple[int, bool]:
        """Up to which call a preferred size goes; whether only less than the largest one does.

        `start`: rows before the open batch. Nothing preferred is the call that is next.
        """
        ends, arrived = self._ends, self.arrived
        is_full = ends[arrived] - start > self._preferred[-1]
        for size in reversed(self._preferred):
            last = bisect_right(ends, start + size, self._formed, arrived + 1) - 1
            if last > self._formed and ends[last] - start == size:
                return last, False
        if not is_full:
            return self._formed, False
        last = bisect_right(ends, start + self._preferred[-1], self._formed, arrived + 1) - 1
        return max(last, self._formed), True

    def _join(self, batch: Batch, last: int, *, is_closed: bool) -> None:
        if batch is not self._open:
            self._batches.append(batch)
        batch.rows += self._ends[last] - self._ends[self._formed]
        batch.last = self._formed = last
        self._open = batch
        self._begins |= is_closed
