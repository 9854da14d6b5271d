"""Whether the generator, not the server, was the limit of a run: then its numbers say little.

Evidence, in the order in which it is told:

**A busy core.** A worker is one thread. A thread that is busy for a share ρ of its time lets what
arrives wait for ρ ÷ 2(1 − ρ) times as long as it spends on a call (M/D/1): half of that at ρ = 0.5,
almost three times at 0.85, and without bound from there. A worker above 0.85 in a fifth of the
seconds was the limit in more than a passing moment.

**Late without a reason.** Starts lag by themselves, although a connection is free. Their lag is in
the latency, so p99 is compared with p99: above a tenth of the latency's, the generator shows in the
numbers. Below 5 ms nobody is blamed: a time slice of the kernel is 3 to 4 ms, and any machine that
does two things lags that much now and then.

**No connection free.** Arrivals waited because all that the plan allows were in use, while the
generator had time. That is either a plan that allows too few, or a server that does not keep up,
and one run can tell them apart only where it has seen both states: service times that have at least
doubled from the seconds with free connections to those without are the server's, and no bottleneck
here (`is_overloaded` says so). Otherwise both are named.

Seconds at whose end arrivals waited or half of all connections were in use, and the one after, in
which a backlog is sent, are no evidence for a lag of the generator's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.record import RecordWindow
from serve.workbench.loadtest.reports.amounts import figures, share_text, time_text
from serve.workbench.loadtest.reports.counts import span
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import latencies, services_of

BUSY = 0.85  # share of a core
BUSY_SECONDS = 0.20  # share of the run's seconds
OWN_LAG = 0.005  # seconds
OWN_LAG_SHARE = 0.10  # of the latency's p99
WAITING_SECONDS = 0.05  # share of the run's seconds
SLOWED = 2.0  # service time without free connections ÷ with


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run's windows say about its generator.

    `busy`, `waiting`: shares of the run's seconds in which a worker was above `BUSY`, and in which
    arrivals waited for a connection. `busiest`: the busiest worker's share of a core, the median of
    the seconds. `own_lag`: p99 in the seconds with free connections; `latency`: p99 of all.
    `slowed`: service p50 of the seconds in which arrivals waited ÷ of the free ones; nan where one
    kind is missing. `longest_queue`: the most arrivals that waited at a second's end.
    """

    busy: float
    busiest: float
    waiting: float
    own_lag: float
    latency: float
    slowed: float
    longest_queue: int


def evidence(run: LoadRun) -> Evidence:
    """Look at the run's seconds."""
    windows = [each for second, each in run.record.windows.items() if second < span(run)]
    generators = [each.generator for each in windows]
    queued = [each.waiting > 0 for each in generators]
    tight = [each.waiting > 0 or each.in_flight >= connections(run) / 2 for each in generators]
    free = [not any(tight[max(0, at - 1) : at + 1]) for at in range(len(tight))]
    loads = sorted(each.busiest for each in generators)
    lag = Histogram.merged(
        each.lag for each, is_free in zip(generators, free, strict=True) if is_free
    )
    return Evidence(
        busy=_share([each > BUSY for each in loads]),
        busiest=loads[len(loads) // 2] if loads else math.nan,
        waiting=_share(queued),
        own_lag=lag.quantile(0.99),
        latency=latencies(run).quantile(0.99),
        slowed=_slowed(windows, queued, free),
        longest_queue=max((each.waiting for each in generators), default=0),
    )


def bottleneck(run: LoadRun) -> str:
    """One sentence that the generator was the limit, with its evidence; empty where it was not."""
    seen = evidence(run)
    return _own_limit(seen) or _starved(run, seen)


def own_limit(run: LoadRun) -> str:
    """The same, where arrivals that found no connection are no evidence.

    So for a plan that allows many more calls in flight than a server that keeps up could have.
    """
    return _own_limit(evidence(run))


def _own_limit(seen: Evidence) -> str:
    if seen.busy >= BUSY_SECONDS:
        return (
            "The load generator was the bottleneck, not the server: its busiest process "
            f"used more than {share_text(BUSY)} of a core in {share_text(seen.busy)} of "
            f"the seconds (start delay p99 {time_text(seen.own_lag)}). Use more processes "
            "or machines."
        )
    if seen.own_lag > max(OWN_LAG, OWN_LAG_SHARE * seen.latency):
        return (
            "The load generator was the bottleneck, not the server: it started calls "
            f"late by {time_text(seen.own_lag)} (p99), which is part of the p99 latency "
            f"of {time_text(seen.latency)}. Its machine is busy with other work, or too "
            "small."
        )
    return ""


def _starved(run: LoadRun, seen: Evidence) -> str:
    if seen.waiting >= WAITING_SECONDS and not is_overloaded(seen):
        return (
            f"In {share_text(seen.waiting)} of the seconds, up to {seen.longest_queue} "
            f"calls waited for a connection: all {connections(run)} were in use, and the "
            f"load generator's busiest process used {share_text(seen.busiest)} of a core. "
            "Increase --connections. If that changes nothing, the server does not keep "
            "up."
        )
    return ""


def overload(run: LoadRun) -> str:
    """One sentence that the server did not keep up with the arrivals; empty where it did."""
    seen = evidence(run)
    if seen.busy >= BUSY_SECONDS or not is_overloaded(seen):
        return ""
    return (
        f"The server did not keep up: in {share_text(seen.waiting)} of the seconds, all "
        f"{connections(run)} connections were in use and up to {seen.longest_queue} calls "
        f"waited. Responses took {figures(seen.slowed)} times as long as before."
    )


def is_overloaded(seen: Evidence) -> bool:
    """Whether arrivals waited because the server slowed down."""
    return seen.waiting >= WAITING_SECONDS and seen.slowed >= SLOWED


def connections(run: LoadRun) -> int:
    """What the plan allows, over all lanes and workers."""
    return int(run.outline["most"]) * run.workers * len(run.outline["lanes"])


def _slowed(windows: Sequence[RecordWindow], queued: Sequence[bool], free: Sequence[bool]) -> float:
    with_queue, without = (
        services_of(each for each, is_it in zip(windows, kind, strict=True) if is_it)
        for kind in (queued, free)
    )
    return with_queue.quantile(0.5) / without.quantile(0.5) if without.count else math.nan


def _share(those: Sequence[bool]) -> float:
    return sum(those) / len(those) if those else math.nan
