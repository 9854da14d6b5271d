"""Scalers: this project's policy, and what people use today, each as its source has it.

| scaler | its rule, with the defaults that its documentation names                                |
|--------|-----------------------------------------------------------------------------------------|
| ours   | `capacity/scaling/policy.py`, with a capacity that is learned from executions           |
| hpa    | Kubernetes: every 15 s ⌈replicas · value ÷ target⌉, beyond a tolerance of 0.1; up by    |
|        | 100 % or 4 pods in 15 s, down by the most of the last 300 s                             |
| kpa    | Knative: every 2 s, concurrency over 60 s, or over 6 s in a panic (twice as much as     |
|        | there is), which lasts 60 s and never goes down; else down to a half at most            |
| ray    | Ray Serve: ongoing calls over 30 s ÷ target; up after 30 s of the same wish, down after |
|        | 600 s                                                                                   |
| oracle | knows what comes: as few as bear the next cold start, smoothed over 30 s                |
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from serve.capacity.fleets.fleet import Seen, Server
from serve.capacity.fleets.loads import Floats
from serve.capacity.scaling import policy
from serve.capacity.scaling.learning import Learned
from serve.capacity.scaling.signals import Bounds, ModelSignal, PoolSignal

Value = Callable[[Seen], float]


class Window:
    """Sums of the last seconds, tick by tick."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: deque[tuple[float, float]] = deque()

    def add(self, at: float, value: float) -> None:
        """One tick's."""
        self._kept.append((at, value))
        while self._kept[0][0] <= at - self._seconds:
            self._kept.popleft()

    @property
    def values(self) -> list[float]:
        """Of the ticks in it, ascending in time."""
        return [value for _, value in self._kept]

    @property
    def mean(self) -> float:
        """0 without any."""
        values = self.values
        return sum(values) / len(values) if values else 0.0


class Ours:
    """The policy of this project. `bounds` are what people allow."""

    def __init__(self, server: Server, bounds: Bounds, *, began: float = -policy.RESTARTED) -> None:
        self._server = server
        self._bounds = bounds
        self._state = policy.begin(began)
        self._learned = Learned(server.limit, instances=1, largest=server.largest)
        self._recent, self._lately = Window(5.0), Window(15.0)
        self._late, self._answered = Window(60.0), Window(60.0)
        self._queued, self._computed = Window(60.0), Window(60.0)
        self._wish: int | None = None
        self._next = 0.0
        self._called = 0.0  # when the last call came

    def decide(self, seen: Seen) -> int:
        """Every five seconds; what was wished before meanwhile."""
        self._look(seen)
        if seen.at < self._next and self._wish is not None:
            return self._wish
        self._next = seen.at + policy.TICK
        self._state, hint = policy.decide(self._state, self._signal(seen), self._bounds)
        self._wish = hint.desired
        return hint.desired

    def _look(self, seen: Seen) -> None:
        at = seen.at
        self._recent.add(at, seen.calls)
        self._lately.add(at, seen.calls)
        self._late.add(at, seen.late)
        self._answered.add(at, seen.calls)
        self._queued.add(at, seen.queued)
        self._computed.add(at, seen.computed)
        self._learned.add(
            {rows: (count, spent) for rows, (count, spent) in seen.executions.items()}, at
        )
        rate = seen.answered / seen.ready if seen.ready else 0.0
        self._learned.saturated(rate, seen.waiting / max(1, seen.ready), at)
        if seen.calls:
            self._called = at

    def _signal(self, seen: Seen) -> PoolSignal:
        came, computed = sum(self._answered.values), sum(self._computed.values)
        model = ModelSignal(
            "m",
            recent=sum(self._recent.values) / 5.0,
            lately=sum(self._lately.values) / min(15.0, max(1.0, seen.at)),
            waiting=float(seen.waiting),
            capacity=self._learned.capacity(seen.at),
            holding=seen.ready,
            limit=self._server.limit,
            missed=min(1.0, sum(self._late.values) / came) if came else None,
            pressure=sum(self._queued.values) / computed if computed else None,
        )
        return PoolSignal(
            "p",
            seen.at,
            seen.ready,
            seen.starting,
            (model,),
            cold_start=self._server.cold_start,
            idle=seen.at - self._called,
        )


class Hpa:
    """Kubernetes' autoscaler on the mean of a value per ready replica, in its default behaviour.

    `value` is told tick by tick and averaged over `window` seconds, as a metrics system does.
    """

    period, tolerance, stable = 15.0, 0.1, 300.0

    def __init__(
        self, value: Value, target: float, *, least: int, most: int, window: float = 30.0
    ) -> None:
        self._value, self._target = value, target
        self._least, self._most = least, most
        self._window = Window(window)
        self._asked = Window(self.stable)
        self._next = 0.0
        self._wish: int | None = None

    def decide(self, seen: Seen) -> int:
        """Every 15 seconds."""
        self._window.add(seen.at, self._value(seen))
        there = seen.ready + seen.starting
        if self._wish is None:
            self._wish = there
        if seen.at < self._next:
            return self._wish
        self._next = seen.at + self.period
        self._asked.add(seen.at, self._asks(seen, there))
        asked = int(self._asked.values[-1])
        if asked > there:
            wish = min(asked, max(2 * there, there + 4))
        else:
            wish = min(there, int(max(self._asked.values)))
        self._wish = min(max(wish, self._least), self._most)
        return self._wish

    def _asks(self, seen: Seen, there: int) -> int:
        if not seen.ready:
            return max(there, 1)
        ratio = self._window.mean / self._target
        if abs(ratio - 1) <= self.tolerance:
            return there
        if ratio > 1 and seen.starting:  # those that are not ready count as idle
            ratio *= seen.ready / there
            if ratio <= 1 + self.tolerance:
                return there
            return math.ceil(ratio * there)
        return math.ceil(ratio * seen.ready) if not seen.starting else there


class Kpa:
    """Knative's autoscaler on concurrency; `target` calls at a replica."""

    period, stable, panic, threshold = 2.0, 60.0, 6.0, 2.0

    def __init__(self, target: float, *, least: int, most: int) -> None:
        self._target, self._least, self._most = target, least, most
        self._long, self._short = Window(self.stable), Window(self.panic)
        self._next, self._panics_until, self._highest = 0.0, -math.inf, 0
        self._wish: int | None = None

    def decide(self, seen: Seen) -> int:
        """Every two seconds."""
        inside = float(seen.waiting + seen.running)
        self._long.add(seen.at, inside)
        self._short.add(seen.at, inside)
        if seen.at < self._next and self._wish is not None:
            return self._wish
        self._next = seen.at + self.period
        ready = max(1, seen.ready)
        wants = math.ceil(self._long.mean / self._target)
        panics = math.ceil(self._short.mean / self._target)
        wants, panics = (max(each, math.floor(ready / 2)) for each in (wants, panics))
        if panics / ready >= self.threshold:
            self._panics_until = seen.at + self.stable
        if seen.at < self._panics_until:
            self._highest = max(self._highest, panics, wants)
            wants = self._highest
        else:
            self._highest = 0
        self._wish = min(max(wants, self._least), self._most)
        return self._wish


class Ray:
    """Ray Serve's autoscaler; `target` ongoing calls at a replica."""

    look_back, up_delay, down_delay = 30.0, 30.0, 600.0

    def __init__(self, target: float, *, least: int, most: int) -> None:
        self._target, self._least, self._most = target, least, most
        self._inside = Window(self.look_back)
        self._since: tuple[int, float] = (0, 0.0)  # the direction of the wish, and since when

    def decide(self, seen: Seen) -> int:
        """At each tick."""
        self._inside.add(seen.at, float(seen.waiting + seen.running))
        there = seen.ready + seen.starting
        wants = math.ceil(self._inside.mean / self._target)
        wants = min(max(wants, self._least), self._most)
        direction = (wants > there) - (wants < there)
        if direction != self._since[0]:
            self._since = (direction, seen.at)
        delay = self.up_delay if direction > 0 else self.down_delay
        if direction and seen.at - self._since[1] >= delay:
            self._since = (0, seen.at)
            return wants
        return there


class Oracle:
    """Knows all calls; `capacity` is what a replica bears, in calls per second."""

    def __init__(self, plan: Sequence[int]) -> None:
        self._plan = plan

    @classmethod
    def knowing(
        cls, times: Floats, seconds: float, server: Server, capacity: float, *, least: int = 1
    ) -> "Oracle":
        """As few as bear what comes; replicas are wished for a cold start before."""
        count = math.ceil(seconds) + 1
        rates = np.bincount(np.floor(times).astype(np.int64), minlength=count).astype(float)
        smooth = np.convolve(rates, np.ones(30) / 30, mode="same")
        needs = np.ceil(np.maximum(smooth, 0) / capacity)
        ahead = int(server.cold_start) + 1
        plan = [max(least, int(needs[at : at + ahead + 1].max(initial=0))) for at in range(count)]
        return cls(plan)

    def decide(self, seen: Seen) -> int:
        """What will be needed when it has started."""
        return self._plan[min(int(seen.at), len(self._plan) - 1)]


def per_replica(seen: Seen) -> float:
    """Calls per second at a ready replica, of a tick of one second."""
    return seen.calls / max(1, seen.ready)


def utilisation(seen: Seen) -> float:
    """The share of time in which something runs, as NVML tells it."""
    return seen.busy
