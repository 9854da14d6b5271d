"""Calibration: a handful of closed loops tell how long executions take, and how instances share.

one caller                  what a call takes besides its execution, and how much it scatters
half a batch of callers     executions of middling sizes
two batches of callers      full ones, without a pause: what an instance needs between two
the same for k instances    how much they slow each other down
more calls than that        the same while calls come whenever they like: where they are short,
                            who takes them in has a part of the processors that callers, who wait
                            for their answers together, leave to the instance
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from serve.capacity.measurements import Ask, Calibration, Measured, Pressure
from serve.capacity.service import ExecutionPoint, ServiceTime, at_one_size, fitted
from serve.capacity.setup import BatchSetup

_MOST_SCATTER = 0.6
_TAIL = 2.326  # standard deviations up to p99
_CALLERS = 256  # at most
_PRESSURE = 1.2  # times what was answered in the closed loop
_LONGER = 2.0  # units for a loop by which all setups are judged
_BUSY = 0.2  # of an execution: who waits less in the queue does not keep the instance busy


def calibrations(grid: Sequence[BatchSetup], rows: int) -> tuple[Calibration, ...]:
    """What to measure before anything can be predicted for this grid, as few loads as possible."""
    largest = max((each.max_batch_size for each in grid if each.batches), default=0)
    calls = max(1, largest // rows)
    one = BatchSetup(largest, 1, batches=largest > 1)
    if largest <= 1:
        one = BatchSetup(max(each.max_batch_size for each in grid), 1, batches=False)
    callers = sorted({1, max(2, calls // 2), min(2 * max(1, calls), _CALLERS)})
    found = [Calibration(one, each, 1.0 if each == 1 else _LONGER) for each in callers]
    for count in sorted({each.instances for each in grid} - {1}):
        several = BatchSetup(one.max_batch_size, count, batches=one.batches)
        most = min(2 * count * max(1, calls), _CALLERS)
        found.append(Calibration(several, most, _LONGER))
    return tuple(found)


Told = tuple[Ask, Measured]
History = Sequence[tuple[Ask, Measured | str]]


def coming(planned: Sequence[Calibration], history: History) -> Ask | None:
    """What to calibrate with next; None when there is nothing left.

    A setup that was kept busy is put under pressure before the next one is loaded.
    """
    asked = dict(history)
    for place, each in enumerate(planned):
        if each not in asked:
            return each
        told, is_last = asked[each], each.setup not in {one.setup for one in planned[place + 1 :]}
        if is_last and isinstance(told, Measured) and _is_busy(each, told):
            pressure = Pressure(each.setup, _PRESSURE * told.rate)
            if pressure not in asked:
                return pressure
    return None


def read(told: Iterable[Told], rows: int) -> tuple[ServiceTime, float] | None:
    """The service time, and seconds of overhead of a call; None where too little was executed."""
    known = list(told)
    alone = [(ask, measured) for ask, measured in known if ask.setup.instances == 1]
    closed = [(ask, measured) for ask, measured in alone if isinstance(ask, Calibration)]
    line = _line([point for _, measured in closed for point in measured.points])
    if line is None:
        return None
    single = next((measured for ask, measured in closed if ask.callers == 1), None)
    overhead = max(0.0, single.p50 - line.time(rows)) if single else 0.0
    pauses = [_pause(measured, line) for ask, measured in alone if _is_busy(ask, measured)]
    fixed, per_row = _pausing(pauses, rows, overhead)
    scatter = max(line.scatter, _scatter(single)) if single else line.scatter
    service = ServiceTime(line.fixed + fixed, line.per_row + per_row, scatter)
    slowdown = {1: 1.0}
    for ask, measured in known:
        count = ask.setup.instances
        if count > 1 and measured.executions:
            slowed = min(max(1.0, _slowed(ask, measured, line, service)), 1.5 * count)
            slowdown[count] = max(slowed, slowdown.get(count, 1.0))
    return replace(service, slowdown=slowdown), max(0.0, overhead - fixed - per_row * rows)


def _line(points: Sequence[ExecutionPoint]) -> ServiceTime | None:
    """The time of an execution by its rows; flat where only one size is known."""
    line, same = fitted(points), at_one_size(points)
    if line is not None or same is None:
        return line
    return ServiceTime(same * (1 - 1e-6), same * 1e-6 / max(1, points[0].rows))


def _slowed(ask: Ask, measured: Measured, line: ServiceTime, service: ServiceTime) -> float:
    """By what factor several instances take longer than one of them would alone."""
    if not _is_busy(ask, measured):
        return measured.mean / line.time(measured.rows_per_execution)
    held = measured.seconds * ask.setup.instances / measured.executions
    return held / service.time(measured.rows_per_execution)


def _is_busy(ask: Ask, measured: Measured) -> bool:
    """Whether calls wait whenever an instance is free, as far as the queue tells."""
    if not measured.executions or (isinstance(ask, Calibration) and ask.callers == 1):
        return False
    return not measured.queue or measured.queue >= _BUSY * measured.mean


def _pause(measured: Measured, line: ServiceTime) -> ExecutionPoint:
    """By how many seconds an execution holds a busy instance for longer than it takes alone."""
    rows = measured.rows_per_execution
    held = measured.seconds / measured.executions
    return ExecutionPoint(round(rows), max(0.0, held - line.time(rows)), measured.executions)


def _pausing(pauses: Sequence[ExecutionPoint], rows: int, most: float) -> tuple[float, float]:
    """Seconds of a pause, and more for each row: whoever executes hands the answers out as well.

    A lone call of `rows` has its pause, too, so that is at most its overhead: `most`. What is
    longer than that after a larger batch comes from its rows.
    """
    if not pauses:
        return 0.0, 0.0
    line = fitted([each for each in pauses if each.seconds > 0])
    full = max(pauses, key=lambda each: each.seconds)
    lone = min(line.time(rows) if line else full.seconds, most)
    if full.rows <= rows:
        return lone, 0.0
    per_row = max(0.0, full.seconds - lone) / (full.rows - rows)
    if per_row * rows > lone:
        return 0.0, full.seconds / full.rows
    return lone - per_row * rows, per_row


def _scatter(single: Measured) -> float:
    """The coefficient of variation of a log-normal with these quantiles."""
    if not 0 < single.p50 < single.p99:
        return 0.0
    width = math.log(single.p99 / single.p50) / _TAIL
    return min(_MOST_SCATTER, math.sqrt(math.expm1(width**2)))
