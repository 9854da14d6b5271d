"""From calls to windows: lists while calls end, histograms when there is a moment.

A call that ends costs one append. `gather` turns what has come into histograms, some microseconds
for many calls at once; `fold` hands the windows out. A window may come in several parts, but how
the generator was is told once for every second, because parts are added.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.loadtest.record import NEVER_STARTED, CallKey, RecordCell, RecordWindow

_ROUNDING = 1e-7  # seconds: what sums of clock times may be off by


class WindowRecorder:
    """The `Recorder` of one worker. `begins`: second 0 by the driver's clock.

    What was meant to start before second 0 is not recorded. What starts after the last of
    `seconds`, as a closed loop's call may by a hair, counts in the last.
    """

    def __init__(self, begins: float, seconds: float) -> None:
        self._begins = begins
        self._last = math.ceil(seconds) - 1
        self._calls: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
        self._lags: list[float] = []
        self._windows: dict[int, RecordWindow] = {}
        self._second = 0
        self._looked: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return f"<WindowRecorder in second {self._second}>"

    def ended(
        self,
        lane: int,
        intended: float,
        started: float,
        ended: float,
        outcome: str,
        decision: str,
        rows: int,
    ) -> None:
        """Take one call."""
        self._calls[lane, outcome, decision].extend((intended, started, ended, rows))

    def lagged(self, intended: float, started: float) -> None:
        """Take the start of one call, when it is made."""
        self._lags.extend((intended, started))

    def looked(self, now: float, *, in_flight: int, waiting: int, cpu: float) -> None:
        """Take how the generator is now, for all seconds that have ended since the last look.

        `cpu`: CPU seconds of this process so far. The first look, at second 0, is what the next is
        compared with.
        """
        second = int(now - self._begins + _ROUNDING)
        if self._looked is None:
            self._looked = (now, cpu)
        if second <= self._second:
            return
        share = (cpu - self._looked[1]) / max(now - self._looked[0], _ROUNDING)
        for each in range(self._second, second):
            generator = self._window(each).generator
            generator.in_flight = in_flight
            generator.waiting = waiting
            generator.cpu = share
            generator.busiest = min(share, 1.0)
        self._second, self._looked = second, (now, cpu)

    def gather(self) -> None:
        """Turn what has come into histograms."""
        calls, self._calls = self._calls, defaultdict(list)
        for (lane, outcome, decision), flat in calls.items():
            table = np.array(flat).reshape(-1, 4)
            self._count(CallKey(lane, outcome, decision), table[table[:, 0] >= self._first])
        lags, self._lags = np.array(self._lags).reshape(-1, 2), []
        lags = lags[lags[:, 0] >= self._first]
        for second, part in _by(self._seconds(lags[:, 0]), lags):
            self._window(second).generator.lag.add(part[:, 1] - part[:, 0])

    def fold(self) -> Iterator[tuple[int, RecordWindow]]:
        """All that has come since the last time, by the second."""
        self.gather()
        windows, self._windows = self._windows, {}
        yield from sorted(windows.items())

    @property
    def _first(self) -> float:
        return self._begins - _ROUNDING

    def _count(self, key: CallKey, table: Array) -> None:
        """`table`: intended, started, ended, rows; a row for a call."""
        for second, part in _by(self._seconds(table[:, 0]), table):
            cell = self._window(second).cells.setdefault(key, RecordCell())
            intended, started, ended, rows = part.T
            cell.latency.add(ended - intended)
            cell.rows += int(rows.sum())
            if key.outcome != NEVER_STARTED:
                cell.service.add(ended - started)
        if key.outcome != NEVER_STARTED:
            clock = np.floor(table[:, 2] - self._begins + _ROUNDING).astype(np.int64)
            for second, part in _by(clock, table):
                self._window(second).generator.ended += len(part)

    def _seconds(self, intended: Array) -> Array:
        found: Array = np.floor(intended - self._begins + _ROUNDING).astype(np.int64)
        return np.minimum(found, self._last, out=found)

    def _window(self, second: int) -> RecordWindow:
        return self._windows.setdefault(second, RecordWindow())


def _by(seconds: Array, table: Array) -> Iterator[tuple[int, Array]]:
    for second in np.unique(seconds).tolist():
        yield second, table[seconds == second]
