"""The closed loop: users who wait for each answer before they call again.

A user's next call is due `think` seconds after the answer, and not before `period` seconds after
the last start. So a slow answer moves all that would have come after it, and the slowness is seen
by one call only: this loop is here because everybody measures so, and to show the difference.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from serve.load.engine.lane_calls import Body, LaneCalls

_STAGGER = 0.001  # seconds between the first calls of users who neither think nor keep a pace
_STAGGER_MOST = 0.5

User = Iterator[tuple[LaneCalls, Body]]


def first_starts(
    users: int, *, spread: float, worker: int = 0, workers: int = 1
) -> tuple[float, ...]:
    """When this worker's users begin: all users of the run at equal steps over `spread` seconds."""
    spread = spread or min(users * _STAGGER, _STAGGER_MOST)
    return tuple(spread * user / users for user in range(worker, users, workers))


class ClosedLoop:
    """`firsts`: when each user begins, by the clock. `choice`: the lane of each user's next call.

    `hasten` is called with a time at which something is due earlier than `wake` has said.
    """

    def __init__(
        self,
        lanes: Sequence[LaneCalls],
        *,
        firsts: Sequence[float],
        choice: Iterator[LaneCalls],
        think: float = 0.0,
        period: float = 0.0,
        hasten: Callable[[float], None],
    ) -> None:
        self._lanes = lanes
        self._think = think
        self._period = period
        self._hasten = hasten
        self._due = [(first, number) for number, first in enumerate(firsts)]
        self._users = [_calls(choice) for _ in firsts]
        heapq.heapify(self._due)

    def __repr__(self) -> str:
        return f"<ClosedLoop of {len(self._users)} users, {len(self._due)} at rest>"

    def wake(self, now: float) -> float:
        """Start all that is due, in order; returns when the next will be, as far as is known."""
        while self._due and self._due[0][0] <= now:
            due, user = heapq.heappop(self._due)
            self._call(user, due)
        return self._due[0][0] if self._due else float("inf")

    def stop(self, now: float) -> None:
        """The run's seconds are over: nobody calls again."""
        self._due.clear()
        for each in self._lanes:
            each.stop(now)

    def _call(self, user: int, due: float) -> None:
        lane, (payload, body) = next(self._users[user])
        lane.make(due, payload, body, lambda started, ended: self._call_again(user, started, ended))

    def _call_again(self, user: int, started: float, ended: float) -> None:
        due = max(started + self._period, ended + self._think)
        if due <= ended:
            self._call(user, due)
        else:
            heapq.heappush(self._due, (due, user))
            self._hasten(due)


def _calls(choice: Iterator[LaneCalls]) -> User:
    """All calls of one user: a lane, and as many calls there as belong together."""
    for lane in choice:
        for body in lane.bodies():
            yield lane, body
