"""Calibration: a handful of closed loops tell how long executions take, and how instances share.

one caller                  what a call takes besides its execution, and how much it scatters
half a batch of callers     executions of middling sizes
two batches of callers      full ones, without a pause: what an instance needs between two
the same for k instances    how much they slow each other down
"""

import math
from collections.abc import Iterable, Sequence

from serve.capacity.asking import Calibration, Measured
from serve.capacity.service import Service, at_one_size, fitted
from serve.capacity.setup import Setup

_MOST_SCATTER = 0.6
_TAIL = 2.326  # standard deviations up to p99
_CALLERS = 256  # at most
_BUSY = 0.2  # of an execution: who waits less in the queue does not keep the instance busy


def calibrations(grid: Sequence[Setup], rows: int) -> tuple[Calibration, ...]:
    """What to measure before anything can be predicted for this grid, as few loads as possible."""
    largest = max((each.max_batch_size for each in grid if each.batches), default=0)
    calls = max(1, largest // rows)
    one = Setup(largest, 1, batches=largest > 1)
    if largest <= 1:
        one = Setup(max(each.max_batch_size for each in grid), 1, batches=False)
    callers = sorted({1, max(2, calls // 2), min(2 * max(1, calls), _CALLERS)})
    found = [Calibration(one, each) for each in callers]
    for count in sorted({each.instances for each in grid} - {1}):
        several = Setup(one.max_batch_size, count, batches=one.batches)
        found.append(Calibration(several, min(2 * count * max(1, calls), _CALLERS)))
    return tuple(found)


Told = tuple[Calibration, Measured]


def read(told: Iterable[Told], rows: int) -> tuple[Service, float] | None:
    """The service time, and seconds of overhead of a call; None where too little was executed."""
    known = list(told)
    alone = [(ask, measured) for ask, measured in known if ask.setup.instances == 1]
    points = [point for _, measured in alone for point in measured.points]
    line = fitted(points)
    if line is None:
        same = at_one_size(points)
        if same is None:
            return None
        line = Service(same * (1 - 1e-6), same * 1e-6 / max(1, points[0].rows))
    pause = max((_pause(measured) for ask, measured in alone if ask.callers > 1), default=0.0)
    single = next((measured for ask, measured in alone if ask.callers == 1), None)
    overhead = max(0.0, single.p50 - line.time(rows)) if single else 0.0
    service = Service(
        line.fixed + min(pause, overhead),
        line.per_row,
        max(line.scatter, _scatter(single)) if single else line.scatter,
    )
    slowdown = {1: 1.0}
    for ask, measured in known:
        if ask.setup.instances > 1 and measured.executions:
            held = measured.seconds * ask.setup.instances / measured.executions
            slowed = held / service.time(measured.rows_per_execution)
            slowdown[ask.setup.instances] = min(max(1.0, slowed), 1.5 * ask.setup.instances)
    service = Service(service.fixed, service.per_row, service.scatter, slowdown)
    return service, max(0.0, overhead - min(pause, overhead))


def _pause(measured: Measured) -> float:
    """Seconds between two executions of an instance that always has work; 0 where it has not."""
    if not measured.executions:
        return 0.0
    spent = sum(point.seconds * point.executions for point in measured.points)
    mean = spent / measured.executions
    if measured.queue and measured.queue < _BUSY * mean:
        return 0.0
    return max(0.0, measured.seconds / measured.executions - mean)


def _scatter(single: Measured) -> float:
    """The coefficient of variation of a log-normal with these quantiles."""
    if not 0 < single.p50 < single.p99:
        return 0.0
    width = math.log(single.p99 / single.p50) / _TAIL
    return min(_MOST_SCATTER, math.sqrt(math.expm1(width**2)))
