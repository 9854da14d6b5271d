"""What a run shows, in sentences with their numbers, the most important first.

Each sentence has a rule of its own, a function below; they are asked in order of importance: can
the numbers be believed, was what was asked met, what did users see, why was it so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from math import inf

from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.observations.hints import GROUP, READY, WANTED
from serve.workbench.loadtest.observed import TritonTimes
from serve.workbench.loadtest.record import LATE, RecordWindow
from serve.workbench.loadtest.reports.amounts import rate_text, share_text, time_text
from serve.workbench.loadtest.reports.bottleneck import bottleneck, overload
from serve.workbench.loadtest.reports.counts import span
from serve.workbench.loadtest.reports.objectives import judge_run
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import (
    achieved,
    intended_rate,
    late_share,
    latencies_of,
    never_started,
    rows,
    total,
)

_REACHED = 0.99  # right answers ÷ intended calls
_LATE = 0.01  # share of calls
_STALL = 2  # seconds
_QUEUED = 0.5  # queue ÷ all of a request's time in Triton
_QUEUE = 0.001  # seconds in Triton's queue that are worth a word
_SLOWER = 1.25  # one version's p50 ÷ another's
_CALLS = 100  # of a version, to be compared with another
_ADDED = 0.5  # time added by gateway and network ÷ Triton's own
_GREW = 1.5  # p50 of the last third ÷ of the first
_BEYOND = 10  # calls beyond a quantile, to be sure of it
_MOST_OUTCOMES = 3
_BOUNDS = ("most", "budget")  # codes of hints


def findings(run: LoadRun) -> tuple[str, ...]:
    """All that can be said of a run; empty where nothing is worth a word."""
    return tuple(itertools.chain.from_iterable(rule(run) for rule in _RULES))


def _limit(run: LoadRun) -> Iterator[str]:
    if sentence := bottleneck(run):
        yield sentence


def _objectives(run: LoadRun) -> Iterator[str]:
    judged = judge_run(run)
    missed = [each for each in judged if not each.passed]
    for each in missed:
        yield f"The objective is not met: {each.said}, but {each.condition} is required."
    if judged and not missed:
        yield f"The objective is met: {', '.join(each.said for each in judged)}."


def _errors(run: LoadRun) -> Iterator[str]:
    row = total(run)
    if row.calls == 0:
        yield "No calls were made."
        return
    if row.failed:
        named = [f"{outcome} {calls}" for outcome, calls in row.errors.items()]
        more = len(named) - _MOST_OUTCOMES
        rest = f" and {more} other kinds" if more > 0 else ""
        yield (
            f"{share_text(row.error_share)} of {row.calls} calls got no correct response: "
            f"{', '.join(named[:_MOST_OUTCOMES])}{rest}."
        )


def _rate(run: LoadRun) -> Iterator[str]:
    if run.is_open and achieved(run) < _REACHED:
        yield (
            f"The intended rate was not reached: {rate_text(total(run).rate)} of "
            f"{rate_text(intended_rate(run))} got a correct response."
        )


def _overload(run: LoadRun) -> Iterator[str]:
    if sentence := overload(run):
        yield sentence


def _stall(run: LoadRun) -> Iterator[str]:
    """The longest time in which nothing ended though calls were in flight, if that is unusual."""
    windows, longest, first = run.record.windows, 0, 0
    seconds = range(int(span(run)))
    for is_stuck, group in itertools.groupby(seconds, lambda at: _is_stuck(windows.get(at))):
        found = list(group)
        if is_stuck and len(found) > longest:
            longest, first = len(found), found[0]
    if longest >= _STALL and not longest < 2 * total(run).service.p50:
        yield f"For {longest} s, starting at second {first}, no call got a response."


def _late(run: LoadRun) -> Iterator[str]:
    """Late starts, and those that never were."""
    share, never = late_share(run), never_started(run)
    if run.is_open and share >= _LATE:
        yield (
            f"{share_text(share)} of the calls started {time_text(LATE)} or more after their "
            "intended time."
        )
    if never:
        yield (
            f"{never} calls never started, because no connection was free before the end of "
            "the run."
        )


def _lag(run: LoadRun) -> Iterator[str]:
    """A lag that is a large part of a short latency, however small it is."""
    lag = Histogram.merged(each.generator.lag for each in run.record.windows.values())
    row = total(run)
    if lag.quantile(0.5) > row.latency.p50 / 4 and not bottleneck(run) and late_share(run) < _LATE:
        yield (
            f"Half of the calls started {time_text(lag.quantile(0.5))} or more after "
            "their intended time, which is a large part of the p50 latency of "
            f"{time_text(row.latency.p50)}. Use the service time instead: p50 "
            f"{time_text(row.service.p50)}."
        )


def _queue(run: LoadRun) -> Iterator[str]:
    for each in run.observed.triton:
        whole = each.queue + each.input + each.infer + each.output
        if each.requests and each.queue > _QUEUE and each.queue > _QUEUED * whole:
            yield (
                f"Requests of version {each.version} wait {time_text(each.queue)} in "
                f"Triton's queue, which is {share_text(each.queue / whole)} of their time "
                "in Triton. More instances, more replicas or larger batches would help."
            )


def _batching(run: LoadRun) -> Iterator[str]:
    """Requests that queue and are then executed one by one, although two would fit."""
    most = _largest_batch(run)
    for each in run.observed.triton:
        if _is_alone(each) and 2 * each.rows <= most * each.requests:
            yield (
                f"Triton executed each request of version {each.version} separately, "
                f"although requests queued for {time_text(each.queue)}. Dynamic batching "
                "is off, or has no effect."
            )


def _replicas(run: LoadRun) -> Iterator[str]:
    """Pools that had fewer replicas than they should, or may not have as many."""
    series = {(one.of, one.name): one.values for one in run.observed.series if one.group == GROUP}
    for pool in dict.fromkeys(one.pool for one in run.observed.hints):
        pairs = zip(series.get((pool, WANTED), ()), series.get((pool, READY), ()), strict=False)
        lacks = [(each or 0) - (there or 0) for each, there in pairs]
        if max(lacks, default=0) > 0:
            at = lacks.index(max(lacks))
            wanted, there = series[pool, WANTED][at] or 0, series[pool, READY][at] or 0
            yield (
                f"The scaling hint for pool {pool} was {wanted:.0f} replicas while "
                f"{there:.0f} {'was' if there == 1 else 'were'} ready."
            )
        bounded = [one for one in run.observed.hints if one.pool == pool]
        texts = [text for one in bounded for code, text in one.reasons if code in _BOUNDS]
        if texts:
            yield f"A limit kept the scaling hint for pool {pool} below the demand: {texts[-1]}."


def _versions(run: LoadRun) -> Iterator[str]:
    """Versions of the same lane, the slowest against the fastest."""
    told = [row for row in rows(run) if row.version and row.service.count >= _CALLS]
    for lane, group in itertools.groupby(told, lambda row: row.lane):
        ordered = sorted(group, key=lambda row: row.service.p50)
        fast, slow = ordered[0], ordered[-1]
        if slow.service.p50 > _SLOWER * fast.service.p50:
            yield (
                f"Version {slow.version} is slower than version {fast.version}: p50 "
                f"{time_text(slow.service.p50)} compared with "
                f"{time_text(fast.service.p50)} ({lane})."
            )


def _added(run: LoadRun) -> Iterator[str]:
    gateway = run.observed.gateway
    if gateway is None or gateway.added is None:
        return
    inside = gateway.whole - gateway.added
    if gateway.added <= _ADDED * inside:
        return
    if any(_stall(run)):
        yield (
            f"On average, calls took {time_text(gateway.added)} longer than the "
            f"{time_text(inside)} that Triton reports per request. Most of the difference "
            "may come from the seconds without responses, because a stalled Triton does "
            "not count them. Check the logs of the replicas first."
        )
    else:
        yield (
            f"Gateway and network add {time_text(gateway.added)} to the "
            f"{time_text(inside)} that Triton needs per request."
        )


def _growth(run: LoadRun) -> Iterator[str]:
    """Latency that grows although the rate does not."""
    arrivals = run.outline["arrivals"]
    if arrivals is not None and arrivals["shape"] != "constant":
        return
    seconds = int(span(run))
    windows = run.record.windows
    first, last = (
        latencies_of(windows[at] for at in part if at in windows).quantile(0.5)
        for part in (range(seconds // 3), range(seconds - seconds // 3, seconds))
    )
    if last > _GREW * first:
        yield (
            f"The latency increased although the load did not: p50 was {time_text(first)} "
            f"in the first third of the run, and {time_text(last)} in the last."
        )


def _few(run: LoadRun) -> Iterator[str]:
    """A quantile needs calls beyond it: with ten, its rank is sure to about a third."""
    count = total(run).latency.count
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        if 0 < round(count * (1 - share), 6) < _BEYOND:
            yield (
                f"{count} calls are too few for a reliable {name}: only "
                f"{round(count * (1 - share))} of them are above it."
            )
            return


def _problems(run: LoadRun) -> Iterator[str]:
    yield from run.observed.problems


_RULES: tuple[Callable[[LoadRun], Iterator[str]], ...] = (
    _limit,
    _objectives,
    _errors,
    _rate,
    _overload,
    _stall,
    _late,
    _lag,
    _queue,
    _batching,
    _replicas,
    _versions,
    _added,
    _growth,
    _few,
    _problems,
)


def _is_stuck(window: RecordWindow | None) -> bool:
    return window is not None and window.generator.ended == 0 and window.generator.in_flight > 0


def _largest_batch(run: LoadRun) -> float:
    """The model's `max_batch_size`; without end where nobody has told it."""
    config = run.observed.facts.get("config")
    found = config.get("max_batch_size") if isinstance(config, Mapping) else None
    return found if isinstance(found, int) else inf


def _is_alone(times: TritonTimes) -> bool:
    return (
        times.requests >= _CALLS
        and times.queue > _QUEUE
        and times.executions >= 0.99 * (times.requests - times.failures)
    )
