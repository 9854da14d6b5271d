"""Interleaved rounds, and the ratios that are read off them.

Noise of a shared machine comes in waves. So every round measures all targets, one right after the
other and in a rotated order, a ratio is taken within a round, and the median over the rounds is
reported, with the smallest and the largest beside it.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadtests.bench.accounting import Cpu
from loadtests.bench.generators import Load


@dataclass(frozen=True, slots=True)
class Sample:
    """One run against one target; `cpu` is None where the target's processes are not known."""

    load: Load
    cpu: Cpu | None

    @property
    def rate(self) -> float:
        """Answered calls a second."""
        return self.load.calls / self.load.seconds

    @property
    def cpu_per_call(self) -> float | None:
        """Of the processes that carry traffic, in microseconds; None when there is nothing."""
        return None if self.cpu is None else self.cpu.workers * 1e6 / max(1, self.load.calls)

    @property
    def whole_cpu_per_call(self) -> float | None:
        """Of all processes, in microseconds."""
        cpu = self.cpu
        used = None if cpu is None else cpu.workers + cpu.supervisors
        return None if used is None else used * 1e6 / max(1, self.load.calls)


@dataclass(frozen=True, slots=True)
class Ratio:
    """To the reference: the median over the rounds, and the extremes."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """One target in one row of the results. Times in microseconds."""

    target: str
    calls: int
    failed: int
    rate: float
    rate_ratio: Ratio | None
    cpu: float | None
    cpu_ratio: Ratio | None
    supervision: float | None
    p50: float
    p99: float
    added_p50: float | None
    added_p50_ratio: float | None
    memory: float | None = None  # MiB, of all processes of the target


def interleave(
    targets: Sequence[str], rounds: int, measure: Callable[[str], Sample]
) -> dict[str, list[Sample]]:
    """Measure all targets in each round; who begins moves on by one."""
    samples: dict[str, list[Sample]] = {target: [] for target in targets}
    for number in range(rounds):
        first = number % len(targets)
        for target in (*targets[first:], *targets[:first]):
            samples[target].append(measure(target))
    return samples


def summarise(
    samples: Mapping[str, Sequence[Sample]], *, reference: str, direct: str | None
) -> tuple[Line, ...]:
    """A line per target. `direct` is the target without a proxy: latency is added to its own."""
    bare = samples.get(direct or "")
    floor = None if bare is None else _median([one.load.p50 for one in bare])
    added = {
        name: None if floor is None else _median([one.load.p50 for one in rows]) - floor
        for name, rows in samples.items()
    }
    base = added[reference]
    return tuple(
        Line(
            target=name,
            calls=sum(one.load.calls for one in rows),
            failed=sum(one.load.failed for one in rows),
            rate=_median([one.rate for one in rows]),
            rate_ratio=ratio(rows, samples[reference], lambda one: one.rate),
            cpu=_median_or_none([one.cpu_per_call for one in rows]),
            cpu_ratio=ratio(rows, samples[reference], lambda one: one.cpu_per_call),
            supervision=_supervision(rows),
            p50=_median([one.load.p50 for one in rows]),
            p99=_median([one.load.p99 for one in rows]),
            added_p50=added[name],
            added_p50_ratio=_quotient(added[name], base) if name != direct else None,
        )
        for name, rows in samples.items()
    )


def ratio(
    rows: Sequence[Sample], reference: Sequence[Sample], read: Callable[[Sample], float | None]
) -> Ratio | None:
    """Round by round; None when one side has no such number."""
    pairs = [(read(one), read(other)) for one, other in zip(rows, reference, strict=True)]
    found = [one / other for one, other in pairs if one is not None and other]
    return Ratio(_median(found), min(found), max(found)) if found else None


def _supervision(rows: Sequence[Sample]) -> float | None:
    """CPU time of the processes above the workers, per call, over all rounds."""
    if any(one.cpu is None for one in rows):
        return None
    used = sum(one.cpu.supervisors for one in rows if one.cpu is not None)
    return used * 1e6 / max(1, sum(one.load.calls for one in rows))


def _quotient(value: float | None, base: float | None) -> float | None:
    """None where the base is no number to divide by: the proxy added nothing measurable."""
    return None if value is None or base is None or base <= 0 else value / base


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _median_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _median(known) if known else None
