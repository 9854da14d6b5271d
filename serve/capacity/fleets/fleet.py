"""The fleet: calls go to the replica with the fewest, each batches eagerly, somebody says how many.

a call comes   → to the ready replica with the fewest calls; refused if it would be too late
a replica idles, and calls wait there   → it takes as many as a batch holds, for ℓ(b) seconds
every tick     → the scaler sees what a metrics system would tell, and wants a number
more wanted    → replicas are ready after the cold start; they cost from the wish on
fewer wanted   → what still starts goes first, then the newest; they work off what they have
"""

import heapq
import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from serve.capacity.fleets.loads import Floats
from serve.capacity.service import Service

TICK = 1.0  # seconds; a scaler may decide less often
_LUCK = 4096  # factors of service times, used again and again


@dataclass(frozen=True, slots=True)
class Server:
    """What a replica can do. `limit`: the objective's, in seconds, of every call.

    `largest`: rows of a batch; a call has one row. `cold_start`: seconds until a wish is ready.
    """

    service: Service
    largest: int
    limit: float
    cold_start: float = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is told of the last tick. Counts of calls are of the whole pool.

    `calls`: that came. `late`: answered beyond the limit, or refused. `answered`: of any kind.
    `waiting`, `running`: now. `busy`: the mean share of the tick in which ready replicas executed.
    `executions`: by rows, how many, and the seconds of all. `queued`, `computed`: seconds that
    answered calls spent so.
    """

    at: float
    ready: int
    starting: int
    calls: int
    late: int
    answered: int
    waiting: int
    running: int
    busy: float
    executions: Mapping[int, tuple[int, float]]
    queued: float
    computed: float


class Scaler(Protocol):
    """Who decides. A run has one of its own."""

    def decide(self, seen: Seen) -> int:
        """How many replicas there should be."""
        ...


@dataclass(frozen=True, slots=True)
class Course:
    """What became of it. `late`: calls beyond the limit or refused. `cost`: replica-seconds.

    `turns`: how often the number of wanted replicas changed its direction. `wanted`: after each
    tick, `ready` likewise.
    """

    calls: int
    late: int
    refused: int
    cost: float
    turns: int
    seconds: float
    wanted: tuple[int, ...] = field(repr=False)
    ready: tuple[int, ...] = field(repr=False)

    @property
    def share_late(self) -> float:
        """From 0 to 1."""
        return self.late / self.calls if self.calls else 0.0


@dataclass(slots=True)
class _Replica:
    born: float
    queue: deque[float] = field(default_factory=deque)
    running: int = 0
    begun: float = 0.0
    leaves: bool = False


def simulate(
    times: Floats,
    server: Server,
    scaler: Scaler,
    *,
    first: int,
    seconds: float,
    seed: int = 0,
    tick: float = TICK,
) -> Course:
    """Let calls come at these times (ascending seconds), with so many replicas in the beginning."""
    return _Run(server, first, seed, tick).play(times, scaler, seconds)


class _Run:
    """One simulation."""

    def __init__(self, server: Server, first: int, seed: int, tick: float) -> None:
        service = server.service
        self._server, self._tick = server, tick
        self._times = [0.0] + [service.time(rows) for rows in range(1, server.largest + 1)]
        width = math.sqrt(math.log1p(service.scatter**2))
        luck = np.random.default_rng((seed, 3)).standard_normal(_LUCK)
        self._luck: list[float] = np.exp(width * luck - width**2 / 2).tolist()
        self._drawn = 0
        most = max(1, math.floor(server.limit / self._times[server.largest]))
        self._most = most * server.largest  # calls at a replica; the next would be too late
        self._ready = [_Replica(0.0) for _ in range(first)]
        self._load = [0] * first  # calls of each, in the same order
        self._starting: list[tuple[float, float]] = []  # when ready, when wished, ascending
        self._ends: list[tuple[float, int, _Replica]] = []  # executions, a heap
        self._number = 0
        self._cost = 0.0
        self._late = self._refused = 0
        self._clear()

    def _clear(self) -> None:
        self._calls = self._tick_late = self._answered = 0
        self._busy = self._queued = self._computed = 0.0
        self._executions: Counter[int] = Counter()
        self._spent: defaultdict[int, float] = defaultdict(float)

    def play(self, times: Floats, scaler: Scaler, seconds: float) -> Course:
        """From the first call to the end; what is under way then is counted as it ends."""
        wanted: list[int] = []
        ready: list[int] = []
        arrivals = iter(times.tolist())
        coming = next(arrivals, math.inf)
        at = self._tick
        while at <= seconds + self._tick / 2:
            while True:  # all that happens before the tick
                end = self._ends[0][0] if self._ends else math.inf
                if min(coming, end) > at:
                    break
                if coming <= end:
                    self._admit(coming)
                    coming = next(arrivals, math.inf)
                else:
                    self._answer()
            self._start(at)
            wish = max(0, scaler.decide(self._seen(at)))
            self._follow(wish, at)
            wanted.append(wish)
            ready.append(len(self._ready))
            self._clear()
            at += self._tick
        while self._ends:
            self._answer()
        self._cost += sum(seconds - one.born for one in self._ready)
        self._cost += sum(max(0.0, seconds - wished) for _, wished in self._starting)
        return Course(
            calls=len(times),
            late=self._late,
            refused=self._refused,
            cost=self._cost,
            turns=_turns(wanted),
            seconds=seconds,
            wanted=tuple(wanted),
            ready=tuple(ready),
        )

    def _admit(self, at: float) -> None:
        self._calls += 1
        load = self._load
        if not load:
            self._refuse()
            return
        fewest = min(load)
        if fewest >= self._most:
            self._refuse()
            return
        place = load.index(fewest)
        load[place] = fewest + 1
        replica = self._ready[place]
        replica.queue.append(at)
        if not replica.running:
            self._execute(replica, at)

    def _refuse(self) -> None:
        self._refused += 1
        self._late += 1
        self._tick_late += 1

    def _execute(self, replica: _Replica, at: float) -> None:
        rows = min(len(replica.queue), self._server.largest)
        self._drawn = (self._drawn + 1) % _LUCK
        lasts = self._times[rows] * self._luck[self._drawn]
        replica.running, replica.begun = rows, at
        self._number += 1
        heapq.heappush(self._ends, (at + lasts, self._number, replica))
        self._executions[rows] += 1
        self._spent[rows] += lasts

    def _answer(self) -> None:
        at, _, replica = heapq.heappop(self._ends)
        rows, lasted = replica.running, at - replica.begun
        limit = self._server.limit
        for _ in range(rows):
            came = replica.queue.popleft()
            self._queued += replica.begun - came
            if at - came > limit:
                self._late += 1
                self._tick_late += 1
        self._answered += rows
        self._computed += lasted * rows
        self._busy += lasted
        replica.running = 0
        if not replica.leaves:
            self._load[self._ready.index(replica)] -= rows
        if replica.queue:
            self._execute(replica, at)
        elif replica.leaves:
            self._cost += at - replica.born

    def _start(self, at: float) -> None:
        """What has started by now takes calls; between ticks is as good as at one."""
        while self._starting and self._starting[0][0] <= at:
            _, wished = self._starting.pop(0)
            self._ready.append(_Replica(wished))
            self._load.append(0)

    def _follow(self, wish: int, at: float) -> None:
        there = len(self._ready) + len(self._starting)
        for _ in range(wish - there):
            self._starting.append((at + self._server.cold_start, at))
        for _ in range(there - wish):
            if self._starting:
                _, wished = self._starting.pop()
                self._cost += at - wished
                continue
            replica = self._ready.pop()
            self._load.pop()
            if replica.running or replica.queue:
                replica.leaves = True
            else:
                self._cost += at - replica.born

    def _seen(self, at: float) -> Seen:
        running = sum(one.running for one in self._ready)
        there = len(self._ready)
        return Seen(
            at=at,
            ready=there,
            starting=len(self._starting),
            calls=self._calls,
            late=self._tick_late,
            answered=self._answered,
            waiting=sum(self._load) - running,
            running=running,
            busy=min(1.0, self._busy / (there * self._tick)) if there else 0.0,
            executions={
                rows: (count, self._spent[rows]) for rows, count in self._executions.items()
            },
            queued=self._queued,
            computed=self._computed,
        )


def _turns(wanted: list[int]) -> int:
    """How often it went the other way than before."""
    steps = [after - before for before, after in itertools.pairwise(wanted)]
    signs = [1 if step > 0 else -1 for step in steps if step]
    return sum(one != other for one, other in itertools.pairwise(signs))
