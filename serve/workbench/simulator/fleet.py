"""The fleet: calls go to the replica with the fewest, each batches eagerly, somebody says how many.

a call comes   → to the ready replica with the fewest calls; refused if it would be too late
a replica idles, and calls wait there   → it takes as many as a batch holds, for ℓ(b) seconds
every tick     → the scaler sees what a metrics system would tell, and wants a number
more wanted    → replicas are ready after the cold start; they cost from the wish on
fewer wanted   → what still starts goes first, then the newest; they work off what they have

Hundreds of thousands of calls are gone through one by one: the loop of `_Run.until` is what costs,
so it keeps its things in local names, and does no arithmetic that can be done once a batch.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from heapq import heappop, heappush

import numpy as np

from serve.workbench.simulator.loads import Floats
from serve.workbench.simulator.seen import FleetCourse, SeenTick, SimulatedScaler, SimulatedServer

TICK = 1.0  # seconds; a scaler may decide less often
_LUCK = 4096  # factors of service times, used again and again


class _Replica:
    """`came`: when its calls came, ascending; those before `first` are answered."""

    __slots__ = ("begun", "born", "came", "first", "leaves", "place", "running")

    def __init__(self, born: float, place: int) -> None:
        self.born = born
        self.place = place
        self.came: list[float] = []
        self.first = 0
        self.running = 0
        self.begun = 0.0
        self.leaves = False


def simulate(
    times: Floats,
    server: SimulatedServer,
    scaler: SimulatedScaler,
    *,
    first: int,
    seconds: float,
    seed: int = 0,
    tick: float = TICK,
) -> FleetCourse:
    """Let calls come at these times (ascending seconds), with so many replicas in the beginning."""
    run = _Run(times, server, first, seed, tick)
    wanted: list[int] = []
    ready: list[int] = []
    for number in range(1, math.floor(seconds / tick + 1e-9) + 1):
        at = number * tick
        run.until(at)
        wanted.append(run.follow(scaler, at))
        ready.append(run.ready)
    late, refused, cost = run.end(seconds)
    return FleetCourse(len(times), late, refused, cost, seconds, tuple(wanted), tuple(ready))


class _Run:
    """One simulation."""

    def __init__(
        self, times: Floats, server: SimulatedServer, first: int, seed: int, tick: float
    ) -> None:
        service = server.service
        self._server, self._tick = server, tick
        self._coming = [*times.tolist(), math.inf]
        self._next = 0
        self._lasts = [0.0] + [service.time(rows) for rows in range(1, server.largest + 1)]
        width = math.sqrt(math.log1p(service.scatter**2))
        luck = np.random.default_rng((seed, 3)).standard_normal(_LUCK)
        self._luck: list[float] = np.exp(width * luck - width**2 / 2).tolist()
        most = max(1, math.floor(server.limit / self._lasts[server.largest]))
        self._most = most * server.largest  # calls at a replica; the next would be too late
        self._ready = [_Replica(0.0, place) for place in range(first)]
        self._load = [0] * first  # calls of each, in the same order
        self._starting: list[tuple[float, float]] = []  # when ready, when wished, ascending
        self._ends: list[tuple[float, int, _Replica]] = []  # executions, a heap
        self._number = 0
        self._cost = 0.0
        self._late = self._refused = 0
        self._clear()

    @property
    def ready(self) -> int:
        """Replicas that can be called."""
        return len(self._ready)

    def _clear(self) -> None:
        """A tick begins."""
        self._here = sum(self._load)  # calls then
        self._began = self._next
        self._late_before, self._refused_before = self._late, self._refused
        self._came = self._left = 0.0  # sums of the times of what came, and of what left
        self._answered = 0
        self._busy = self._queued = self._computed = 0.0
        self._executions: Counter[int] = Counter()
        self._spent: defaultdict[int, float] = defaultdict(float)

    def until(self, at: float) -> None:
        """All that happens up to a time."""
        coming, number, ends = self._coming, self._next, self._ends
        ready, load, most = self._ready, self._load, self._most
        end = ends[0][0] if ends else math.inf
        while True:
            came = coming[number]
            if came <= end:
                if came > at:
                    break
                number += 1
                fewest = min(load) if load else most
                if fewest >= most:
                    self._refused += 1
                    continue
                self._came += came
                place = load.index(fewest)
                load[place] = fewest + 1
                replica = ready[place]
                replica.came.append(came)
                if not replica.running:
                    self._execute(replica, came)
                    end = ends[0][0]
            elif end > at:
                break
            else:
                self._answer()
                end = ends[0][0] if ends else math.inf
        self._next = number

    def _execute(self, replica: _Replica, at: float) -> None:
        """It takes a batch of what waits there."""
        rows = min(len(replica.came) - replica.first, self._server.largest)
        self._number = number = self._number + 1
        lasts = self._lasts[rows] * self._luck[number % _LUCK]
        replica.running, replica.begun = rows, at
        heappush(self._ends, (at + lasts, number, replica))
        self._executions[rows] += 1
        self._spent[rows] += lasts

    def _answer(self) -> None:
        """The execution that ends next has ended."""
        at, _, replica = heappop(self._ends)
        rows, begun, came = replica.running, replica.begun, replica.came
        last = replica.first + rows
        first, replica.first, replica.running = replica.first, last, 0
        self._late += bisect_left(came, at - self._server.limit, first, last) - first
        self._queued += rows * begun - sum(came[first:last])
        self._computed += rows * (at - begun)
        self._busy += at - begun
        self._answered += rows
        if not replica.leaves:
            self._left += rows * at
            self._load[replica.place] -= rows
        if last < len(came):
            self._execute(replica, at)
            return
        replica.came, replica.first = [], 0
        if replica.leaves:
            self._cost += at - replica.born

    def follow(self, scaler: SimulatedScaler, at: float) -> int:
        """Start and stop replicas as the scaler wants; how many it wants."""
        while self._starting and self._starting[0][0] <= at:
            _, wished = self._starting.pop(0)
            self._ready.append(_Replica(wished, len(self._ready)))
            self._load.append(0)
        wish = max(0, scaler.decide(self._seen(at)))
        there = len(self._ready) + len(self._starting)
        for _ in range(wish - there):
            self._starting.append((at + self._server.cold_start, at))
        for _ in range(there - wish):
            self._stop(at)
        self._clear()
        return wish

    def _stop(self, at: float) -> None:
        """One fewer; calls that it has are still answered."""
        if self._starting:
            _, wished = self._starting.pop()
            self._cost += at - wished
            return
        replica = self._ready.pop()
        self._load.pop()
        replica.leaves = bool(replica.running)
        if not replica.leaves:
            self._cost += at - replica.born

    def _seen(self, at: float) -> SeenTick:
        running = sum(one.running for one in self._ready)
        there, refused = len(self._ready), self._refused - self._refused_before
        calls, inside = self._next - self._began, sum(self._load)
        left = self._here + calls - refused - inside
        stayed = self._here * self._tick + (calls - refused - left) * at - self._came + self._left
        return SeenTick(
            at=at,
            ready=there,
            starting=len(self._starting),
            calls=calls,
            late=self._late - self._late_before + refused,
            answered=self._answered,
            waiting=inside - running,
            running=running,
            inside=max(0.0, stayed / self._tick),
            busy=self._busy / (there * self._tick) if there else 0.0,
            executions={
                rows: (count, self._spent[rows]) for rows, count in self._executions.items()
            },
            queued=self._queued,
            computed=self._computed,
        )

    def end(self, seconds: float) -> tuple[int, int, float]:
        """What is under way is answered: late calls, those that were refused, and the cost."""
        self.until(seconds)
        while self._ends:
            self._answer()
        self._cost += sum(seconds - one.born for one in self._ready)
        self._cost += sum(max(0.0, seconds - wished) for _, wished in self._starting)
        return self._late + self._refused, self._refused, self._cost
