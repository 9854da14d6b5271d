"""Synthetic records, windows and runs: what a load test could have measured, without one."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.observed import Observed
from serve.workbench.loadtest.plan import Arrivals, Closed, Lane, LaneProtocol, LoadPlan, Payload
from serve.workbench.loadtest.record import (
    RIGHT,
    CallKey,
    GeneratorLoad,
    Record,
    RecordCell,
    RecordWindow,
)
from serve.workbench.loadtest.reports.report import LoadReport, LoadRun

Times = Sequence[float] | np.ndarray[Any, Any]


def lognormal(count: int, *, median: float = 0.010, spread: float = 0.4, seed: int = 0) -> Times:
    """Latencies as servers have them: so many, in seconds."""
    return median * np.exp(spread * np.random.default_rng(seed).standard_normal(count))


def cell_of(latencies: Times, *, service: Times | None = None, rows: int = 1) -> RecordCell:
    """Calls of `rows` rows each; `service` is the latency itself unless told otherwise."""
    return RecordCell(
        Histogram.of(latencies),
        Histogram.of(latencies if service is None else service),
        rows * len(latencies),
    )


def generator_of(
    ended: int, *, lag: float = 0.0002, waiting: int = 0, in_flight: int = 1, busiest: float = 0.3
) -> GeneratorLoad:
    """A second of a generator whose every start lagged `lag` seconds."""
    lags = Histogram.of(np.full(ended, lag))
    return GeneratorLoad(lags, ended, in_flight, waiting, cpu=busiest, busiest=busiest)


def outline_of(
    seconds: float = 60,
    rate: float = 100.0,
    *,
    protocols: Sequence[LaneProtocol] = (LaneProtocol.HTTP_BINARY,),
    is_open: bool = True,
    most: int = 1000,
    checked: bool = False,
    timeout: float = 30.0,
) -> Mapping[str, Any]:
    """A plan's outline, one lane per protocol, named after it."""
    payload = Payload(b"x", expected=(3,) if checked else None, output="y" if checked else "")
    lanes = tuple(
        Lane(str(each), each, "127.0.0.1:9", "/v2/models/m/infer", (payload,)) for each in protocols
    )
    return LoadPlan(
        lanes,
        seconds,
        arrivals=Arrivals(rate) if is_open else None,
        closed=None if is_open else Closed(users=4),
        most=most,
        timeout=timeout,
        labels={"model": "m"},
    ).outline()


def run_of(
    seconds: int = 60,
    rate: float = 100.0,
    *,
    latencies: Callable[[int, int], Times] | None = None,
    median: float = 0.010,
    spread: float = 0.4,
    failed: Mapping[str, float] | None = None,
    failing: float = 0.002,
    decisions: Mapping[str, float] | None = None,
    slower: Mapping[str, float] | None = None,
    protocols: Sequence[LaneProtocol] = (LaneProtocol.HTTP_BINARY,),
    rows: int = 1,
    most: int = 1000,
    is_open: bool = True,
    checked: bool = False,
    observed: Observed | None = None,
    objective: str = "",
    label: str = "a run",
    seed: int = 0,
    **generator: Any,
) -> LoadRun:
    """A run of `rate` calls in each second, whose lanes share them alike.

    `latencies(second, calls)` gives the times of a second's calls; without it they are lognormal
    around `median`. `failed`: the share of calls with each outcome; they end after `failing`
    seconds. `decisions`: the share of each decision; `slower` is a factor on its latencies.
    `generator`: as in `generator_of`.
    """
    draws = np.random.default_rng(seed)
    calls, record = round(rate), Record()
    for second in range(seconds):
        times = median * np.exp(spread * draws.standard_normal(calls))
        if latencies:
            times = np.asarray(latencies(second, calls))
        keys = _keys(draws, calls, len(protocols), failed or {}, decisions or {})
        taken = defaultdict(list)
        for key, time in zip(keys, times.tolist(), strict=True):
            factor = (slower or {}).get(key.decision, 1.0)
            taken[key].append(factor * time if key.outcome == RIGHT else failing)
        cells = {key: cell_of(each, rows=rows) for key, each in taken.items()}
        record.add(second, RecordWindow(cells, generator_of(calls, **generator)))
    outline = outline_of(
        seconds, rate, protocols=protocols, is_open=is_open, most=most, checked=checked
    )
    return LoadRun(label, outline, record, observed or Observed(), objective)


def run_of_seconds(
    seconds: int, window: Callable[[int], RecordWindow], label: str = "a run", **outline: Any
) -> LoadRun:
    """A run of these windows, one for each second."""
    record = Record()
    for second in range(seconds):
        record.add(second, window(second))
    return LoadRun(label, outline_of(seconds, **outline), record)


def report_of(*runs: LoadRun, name: str = "20261122-101500-m-run") -> LoadReport:
    """A report around runs."""
    return LoadReport(
        name=name,
        title="A load test of m",
        scenario="run",
        model="m",
        begun="2026-11-22T10:15:00+00:00",
        command="servegate load run --model m --rate 100 --for 60s",
        runs=runs,
    )


def _keys(
    draws: np.random.Generator,
    count: int,
    lanes: int,
    failed: Mapping[str, float],
    decisions: Mapping[str, float],
) -> list[CallKey]:
    """Of so many calls; those that fail tell no decision."""
    outcomes = _drawn(draws, count, failed, RIGHT)
    told = _drawn(draws, count, decisions, "")
    return [
        CallKey(lane, outcome, decision if outcome == RIGHT else "")
        for lane, outcome, decision in zip(
            draws.integers(0, lanes, count).tolist(), outcomes, told, strict=True
        )
    ]


def _drawn(
    draws: np.random.Generator, count: int, shares: Mapping[str, float], otherwise: str
) -> list[str]:
    """Names by their shares; what is left over is `otherwise`."""
    names = [*shares, otherwise]
    chances = [*shares.values(), max(0.0, 1 - sum(shares.values()))]
    chosen = draws.choice(len(names), count, p=np.array(chances) / sum(chances))
    return [names[place] for place in chosen.tolist()]
