"""What a run comes to: quantiles by lane and version, rates, shares, and how they move over time.

Which calls count in a latency and which seconds in a rate is said, once, in `counts.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.record import (
    LATE,
    NEVER_STARTED,
    RIGHT,
    CallKey,
    RecordCell,
    RecordWindow,
)
from serve.workbench.loadtest.reports.counts import before_end, is_served, is_waited, span
from serve.workbench.loadtest.reports.report import LoadRun

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of some times, in seconds; nan where there are none."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    largest: float

    @classmethod
    def of(cls, times: Histogram) -> Quantiles:
        """What a histogram says."""
        p50, p90, p95, p99, p999, largest = times.quantiles((*QUANTILES, 1.0))
        return cls(times.count, times.mean, p50, p90, p95, p99, p999, largest)


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The calls of one lane, or of one version in it.

    `version` is empty for the whole lane; calls that no version has answered are only there.
    `calls`: all that were meant to start. `rate`, `rows_rate`: right answers, and rows in them, per
    second. `errors`: calls by outcome, the most frequent first, without the right ones.
    """

    lane: str
    protocol: str
    version: str
    calls: int
    right: int
    rate: float
    rows_rate: float
    latency: Quantiles
    service: Quantiles
    errors: Mapping[str, int]

    @property
    def failed(self) -> int:
        """Calls without a right answer."""
        return self.calls - self.right

    @property
    def error_share(self) -> float:
        """(all − right) ÷ all; nan without calls."""
        return self.failed / self.calls if self.calls else math.nan


@dataclass(frozen=True, slots=True)
class RouteShare:
    """Calls that a version has answered, by the reason that was told for it.

    `share` is of all calls that told a decision.
    """

    version: str
    by: str
    calls: int
    share: float


@dataclass(frozen=True, slots=True)
class Instant:
    """Some seconds of the run, from `second` on, `width` of them.

    `intended`, `right` and `failed`: calls that were meant to start then, by how they ended.
    `ended`: calls that ended then, whenever they began. All four are per second. `p50`, `p99`,
    `lag_p99` are in seconds, nan where nothing was. The rest are the largest values in it.
    """

    second: int
    width: int
    intended: float
    ended: float
    right: float
    failed: float
    p50: float
    p99: float
    lag_p99: float
    in_flight: int
    waiting: int
    busiest: float


def rows(run: LoadRun) -> tuple[SummaryRow, ...]:
    """Each lane, followed by each version that it told, in order."""
    found: dict[tuple[int, str], list[tuple[int, CallKey, RecordCell]]] = {}
    for each in run.record.cells():
        _, key, _ = each
        found.setdefault((key.lane, ""), []).append(each)
        if key.version:
            found.setdefault((key.lane, key.version), []).append(each)
    lanes = run.outline["lanes"]
    return tuple(
        _row(run, found[lane, version], str(lanes[lane]["name"]), lanes[lane]["protocol"], version)
        for lane, version in sorted(found, key=lambda place: (place[0], _order(place[1])))
    )


def total(run: LoadRun) -> SummaryRow:
    """All calls of the run."""
    return _row(run, list(run.record.cells()), "", "", "")


def latencies(run: LoadRun) -> Histogram:
    """Of all calls that count, from their intended starts."""
    return latencies_of(run.record.windows.values())


def latencies_of(windows: Iterable[RecordWindow]) -> Histogram:
    """Of some windows."""
    return _merged((window.cells for window in windows), is_waited, lambda cell: cell.latency)


def services_of(windows: Iterable[RecordWindow]) -> Histogram:
    """From the real starts, of the calls that count and did start."""
    return _merged((window.cells for window in windows), is_served, lambda cell: cell.service)


def intended_rate(run: LoadRun) -> float:
    """Calls per second that were meant to start; in the closed loop, that were started."""
    width = span(run)
    calls = sum(cell.calls for second, _, cell in run.record.cells() if second < width)
    return calls / width if width else math.nan


def achieved(run: LoadRun) -> float:
    """Right answers ÷ calls that were meant to start; nan without calls."""
    counts = _counts(run)
    return counts[RIGHT] / counts.total() if counts else math.nan


def never_started(run: LoadRun) -> int:
    """Calls that the run's end has overtaken before a connection was free for them."""
    return _counts(run)[NEVER_STARTED]


def late_share(run: LoadRun) -> float:
    """Calls that started more than `LATE` after their time, or never, ÷ all; nan without calls.

    The closed loop has no intended times, and so nothing late.
    """
    counts = _counts(run)
    if not counts:
        return math.nan
    late = sum(window.generator.lag.above(LATE) for window in run.record.windows.values())
    return min(1.0, (late + counts[NEVER_STARTED]) / counts.total())


def routes(run: LoadRun) -> tuple[RouteShare, ...]:
    """By version and reason, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for _, key, cell in run.record.cells():
        if key.version:
            counts[key.version, key.by] += cell.calls
    whole = counts.total()
    return tuple(
        RouteShare(version, by, calls, calls / whole)
        for (version, by), calls in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def over_time(run: LoadRun, most: int = 240) -> tuple[Instant, ...]:
    """The run's seconds in order, as many together as needed to get at most `most`."""
    windows = run.record.windows
    seconds = math.ceil(span(run))
    width = max(1, math.ceil(seconds / most))
    return tuple(
        _instant(
            second,
            min(width, seconds - second),
            [windows[at] for at in range(second, min(second + width, seconds)) if at in windows],
        )
        for second in range(0, seconds, width)
    )


def _instant(second: int, width: int, windows: list[RecordWindow]) -> Instant:
    counts: Counter[str] = Counter()
    for window in windows:
        for key, cell in window.cells.items():
            counts[key.outcome] += cell.calls
    generators = [window.generator for window in windows]
    p50, p99 = latencies_of(windows).quantiles((0.5, 0.99))
    return Instant(
        second,
        width,
        intended=counts.total() / width,
        ended=sum(each.ended for each in generators) / width,
        right=counts[RIGHT] / width,
        failed=(counts.total() - counts[RIGHT]) / width,
        p50=p50,
        p99=p99,
        lag_p99=Histogram.merged(each.lag for each in generators).quantile(0.99),
        in_flight=max((each.in_flight for each in generators), default=0),
        waiting=max((each.waiting for each in generators), default=0),
        busiest=max((each.busiest for each in generators), default=0.0),
    )


def _row(
    run: LoadRun,
    cells: list[tuple[int, CallKey, RecordCell]],
    lane: str,
    protocol: str,
    version: str,
) -> SummaryRow:
    counts: Counter[str] = Counter()
    width = span(run)
    in_time = in_time_rows = 0.0
    for second, key, cell in cells:
        counts[key.outcome] += cell.calls
        if key.outcome == RIGHT:
            ended = before_end(cell, width - second)
            in_time += ended
            in_time_rows += ended * cell.rows / cell.calls
    latency = Histogram.merged(cell.latency for _, key, cell in cells if is_waited(key.outcome))
    service = Histogram.merged(cell.service for _, key, cell in cells if is_served(key.outcome))
    return SummaryRow(
        lane,
        protocol,
        version,
        calls=counts.total(),
        right=counts[RIGHT],
        rate=in_time / width if width else math.nan,
        rows_rate=in_time_rows / width if width else math.nan,
        latency=Quantiles.of(latency),
        service=Quantiles.of(service),
        errors={outcome: calls for outcome, calls in counts.most_common() if outcome != RIGHT},
    )


def _merged(
    cells: Iterable[Mapping[CallKey, RecordCell]],
    counts: Callable[[str], bool],
    times: Callable[[RecordCell], Histogram],
) -> Histogram:
    return Histogram.merged(
        times(cell) for each in cells for key, cell in each.items() if counts(key.outcome)
    )


def _counts(run: LoadRun) -> Counter[str]:
    """Calls by outcome."""
    counts: Counter[str] = Counter()
    for _, key, cell in run.record.cells():
        counts[key.outcome] += cell.calls
    return counts


def _order(version: str) -> tuple[bool, int, str]:
    """Numbers in their order, then names; nothing first."""
    is_number = version.isdecimal()
    return bool(version) and not is_number, int(version) if is_number else -1, version
