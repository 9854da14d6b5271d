"""A simulation of one replica: calls come, Triton's batcher puts them together, instances execute.

    no batching        each call is one execution, in order, on the first free instance
    no delay, nothing  a free instance takes at once what waits, in order, up to max_batch_size;
    preferred          calls are never split
    else               `batch_formation.py`

All randomness is drawn from the seed before anything happens, in the same order for every setup:
two setups, or two rates, meet the same calls and the same luck, so their difference is theirs.

Instances that share processors: the more of them are busy, the slower all of them are.

All executions go on at the same pace, 1 ÷ slowdown(busy). So one clock of work is enough: it runs
at that pace, an execution ends when the clock has gone on by its duration, and who started with
less work left ends first, whatever starts meanwhile.
"""

import heapq
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serve.capacity.batch_formation import Batcher
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid

# --- instances that share processors --------------------------------------------------------------


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


# --- a simulation of one replica ------------------------------------------------------------------


Floats = NDArray[np.float64]

CALLS = 4000
_WARM_UP = 0.1  # of the calls: they meet an empty server
_BEHIND = 0.05  # of the time: who needs so much longer than the calls take to come does not keep up


@dataclass(frozen=True, slots=True)
class Simulated:
    """What became of the calls; latencies in seconds, without those of the warm-up.

    `rate`: calls per second that ended. `occupancy`: rows per execution ÷ the most there could be.
    `executions`: how many of each size, in rows. `stable`: whether the calls were kept up with.
    """

    p50: float
    p90: float
    p99: float
    rate: float
    rows_per_execution: float
    occupancy: float
    executions: Mapping[int, int]
    stable: bool
    latencies: Floats = field(repr=False, compare=False)  # ascending

    def quantile(self, q: float) -> float:
        """The latency that so many per cent of the calls stay under, in seconds."""
        return float(np.quantile(self.latencies, q / 100))


def saturation(setup: BatchSetup, service: ServiceTime, rows: int = 1) -> float:
    """Calls per second when all instances are busy and all batches as full as they can be."""
    most = max(1, setup.max_batch_size // rows) if setup.batches else 1
    return setup.instances * most / service.time(most * rows, setup.instances)


def simulate(
    setup: BatchSetup,
    service: ServiceTime,
    arrivals: Sequence[float] | Floats | float,
    *,
    calls: int = CALLS,
    rows: int | Sequence[int] = 1,
    overhead: float = 0.0,
    seed: int = 0,
) -> Simulated:
    """What becomes of calls that arrive at these times, or at a rate by a Poisson process.

    `arrivals`: ascending seconds, or calls per second; then there are `calls`. `rows`: of each
    call. `overhead`: seconds that a call takes besides its queue and its execution. `Invalid` for a
    call that is larger than any batch.
    """
    if isinstance(arrivals, (int, float)):
        times = poisson(calls, seed) / arrivals
    else:
        times = np.asarray(arrivals, np.float64)
    sizes = np.broadcast_to(np.asarray(rows, np.int64), times.shape)
    if setup.max_batch_size and sizes.max() > setup.max_batch_size:
        raise Invalid(
            f"a call of {sizes.max()} rows is too large",
            why=f"max_batch_size is {setup.max_batch_size}",
            try_this=f"use max_batch_size {sizes.max()}",
        )
    executions = _executed(setup, service, times.tolist(), sizes, seed)
    return _summed_up(setup, times, sizes, executions, overhead)


@lru_cache(maxsize=16)
def poisson(calls: int, seed: int) -> Floats:
    """So many arrivals at one a second; their mean distance is exactly 1."""
    gaps = np.random.default_rng((seed, 1)).exponential(size=calls)
    times: Floats = np.cumsum(gaps * (calls / gaps.sum()))
    times.setflags(write=False)
    return times


@lru_cache(maxsize=16)
def _luck(calls: int, seed: int) -> Floats:
    luck = np.random.default_rng((seed, 2)).standard_normal(calls)
    luck.setflags(write=False)
    return luck


def _scattered(service: ServiceTime, calls: int, seed: int) -> list[float]:
    """By what factor the n-th execution takes longer than on average; log-normal, of mean 1."""
    width = math.sqrt(math.log1p(service.scatter**2))
    factors: list[float] = np.exp(width * _luck(calls, seed) - width**2 / 2).tolist()
    return factors


Execution = tuple[int, int, float]
"""The calls `first` up to `last`, and when they were answered."""


def _executed(
    setup: BatchSetup,
    service: ServiceTime,
    arrivals: list[float],
    sizes: NDArray[np.int64],
    seed: int,
) -> list[Execution]:
    ends: list[int] = [0, *np.cumsum(sizes).tolist()]
    instances = Instances(setup.instances, service)
    factors = _scattered(service, len(arrivals), seed)
    does_batch = setup.batches and setup.max_batch_size > 1
    if does_batch and (setup.delay > 0 or setup.preferred):
        batcher = Batcher(setup, arrivals, ends)
        return list(_formed(batcher, instances, service, arrivals, factors))
    most = setup.max_batch_size if does_batch else 0
    return list(_eager(most, instances, service, arrivals, ends, factors))


def _eager(
    most: int,
    instances: Instances,
    service: ServiceTime,
    arrivals: list[float],
    ends: list[int],
    factors: list[float],
) -> Iterator[Execution]:
    """Whatever waits goes off, up to `most` rows; one call at a time where that is 0."""
    count, first, number = len(arrivals), 0, 0
    fixed, per_row = service.fixed, service.per_row
    while True:
        end = instances.next_end
        start = max(arrivals[first], instances.now) if first < count else math.inf
        if not (instances.is_free and start <= end) or start == math.inf:
            if end == math.inf:
                return
            yield (*instances.finish(), instances.now)
            continue
        instances.advance(start)
        last = first + 1
        if most:
            here = bisect_right(arrivals, start, last, min(first + most, count))
            last = max(last, bisect_right(ends, ends[first] + most, last, here + 1) - 1)
        duration = (fixed + per_row * (ends[last] - ends[first])) * factors[number]
        instances.start(duration, first, last)
        first, number = last, number + 1


def _formed(
    batcher: Batcher,
    instances: Instances,
    service: ServiceTime,
    arrivals: list[float],
    factors: list[float],
) -> Iterator[Execution]:
    """What the batcher forms goes off."""
    count, number, answered = len(arrivals), 0, 0
    while answered < count:
        coming = arrivals[batcher.arrived] if batcher.arrived < count else math.inf
        end, wakes = instances.next_end, batcher.wakes_at
        now = min(coming, end, wakes)
        if end == now:
            first, last = instances.finish()
            answered += last - first
            yield first, last, now
        else:
            instances.advance(now)
            batcher.arrive(now) if coming == now else batcher.look(now)
        while instances.is_free and (batch := batcher.take(now)) is not None:
            duration = (service.fixed + service.per_row * batch.rows) * factors[number]
            instances.start(duration, batch.first, batch.last)
            number += 1
            batcher.look(now)


def _summed_up(
    setup: BatchSetup,
    arrivals: Floats,
    sizes: NDArray[np.int64],
    executions: list[Execution],
    overhead: float,
) -> Simulated:
    firsts, lasts, ends = (np.array(column) for column in zip(*sorted(executions), strict=True))
    answered = np.repeat(ends, lasts - firsts)
    cold = int(len(arrivals) * _WARM_UP)
    latencies = np.sort((answered - arrivals)[cold:] + overhead)
    rows = np.add.reduceat(sizes, firsts)
    mean = float(rows.mean())
    span, behind = arrivals[-1] - arrivals[0], answered.max() - arrivals[-1]
    p50, p90, p99 = np.quantile(latencies, (0.5, 0.9, 0.99)).tolist()
    most = max(1, setup.max_batch_size) if setup.batches else max(1.0, float(sizes.mean()))
    return Simulated(
        p50=p50,
        p90=p90,
        p99=p99,
        rate=len(arrivals) / float(max(answered.max() - arrivals[0], 1e-12)),
        rows_per_execution=mean,
        occupancy=mean / most,
        executions=MappingProxyType(dict(sorted(Counter(rows.tolist()).items()))),
        stable=bool(behind <= max(_BEHIND * span, 4 * latencies[0])),
        latencies=latencies,
    )
