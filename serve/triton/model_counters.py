"""What Triton has counted of one version: calls, rows, executions by their size, and times.

Source: `ModelStatistics` of Triton's `grpc_service.proto`. Triton counts the time of a call in the
queue and in computing per call: every call of a batch is charged the whole execution. What an
execution takes is counted by its size in rows; backends report that, and some do not.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.wire.statistics import has_fallen

_NO_SIZES: Mapping[int, "Executed"] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Executed:
    """Executions of one size, and nanoseconds that they took, input and output included."""

    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one version on one replica; times in nanoseconds.

    `calls` succeeded, and `whole` is their time from their arrival to their answer. `rows` and
    `executions` are what was executed, `sizes` the same by rows of an execution. A call whose
    answer the response cache had is a hit; it is not executed.
    """

    calls: int = 0
    failures: int = 0
    rows: int = 0
    executions: int = 0
    whole: int = 0
    queue: int = 0
    compute: int = 0
    hits: int = 0
    misses: int = 0
    sizes: Mapping[int, Executed] = field(default_factory=lambda: _NO_SIZES)

    def since(self, before: "Counters") -> "Counters":
        """What rose since another reading; all of it where anything fell: it began again at 0."""
        if has_fallen(before.flat, self.flat):
            return self
        sizes = {}
        for size, one in self.sizes.items():
            was = before.sizes.get(size, _NONE)
            if one.count > was.count:
                sizes[size] = Executed(one.count - was.count, one.ns - was.ns)
        rises = (mine - its for mine, its in zip(self.totals, before.totals, strict=True))
        return _of(rises, sizes)

    @property
    def totals(self) -> tuple[int, ...]:
        """All but the sizes, in the order of the fields."""
        return (
            *(self.calls, self.failures, self.rows, self.executions),
            *(self.whole, self.queue, self.compute, self.hits, self.misses),
        )

    @property
    def flat(self) -> dict[str, Any]:
        """As a tree of numbers that only ever rise."""
        found: dict[str, Any] = {str(place): count for place, count in enumerate(self.totals)}
        for size, one in self.sizes.items():
            found[f"size {size}"] = one.count
            found[f"size {size} ns"] = one.ns
        return found

    @property
    def is_idle(self) -> bool:
        """Whether nothing has been counted."""
        return not (self.calls or self.failures or self.executions)


NOTHING = Counters()
_NONE = Executed(0, 0)


def _of(totals: Iterable[int], sizes: Mapping[int, Executed]) -> Counters:
    calls, failures, rows, executions, whole, queue, compute, hits, misses = totals
    return Counters(
        *(calls, failures, rows, executions, whole, queue, compute, hits, misses),
        sizes=MappingProxyType(dict(sizes)),
    )


def total(parts: Iterable[Counters]) -> Counters:
    """The sum of several, in one pass: there may be hundreds."""
    totals = [0] * len(NOTHING.totals)
    counts: Counter[int] = Counter()
    times: Counter[int] = Counter()
    for part in parts:
        totals = [mine + its for mine, its in zip(totals, part.totals, strict=True)]
        for size, one in part.sizes.items():
            counts[size] += one.count
            times[size] += one.ns
    return _of(totals, {size: Executed(counts[size], times[size]) for size in sorted(counts)})


def read(answer: Any) -> Mapping[tuple[str, int], Counters]:
    """The counters of a `ModelStatisticsResponse`, by name in Triton and version."""
    return {
        (one.name, int(one.version)): _read(one)
        for one in answer.model_stats
        if one.version.isdigit()
    }


def _read(one: Any) -> Counters:
    stats = one.inference_stats
    parts = (stats.compute_input, stats.compute_infer, stats.compute_output)
    return Counters(
        calls=stats.success.count,
        failures=stats.fail.count,
        rows=one.inference_count,
        executions=one.execution_count,
        whole=stats.success.ns,
        queue=stats.queue.ns,
        compute=sum(part.ns for part in parts),
        hits=stats.cache_hit.count,
        misses=stats.cache_miss.count,
        sizes=MappingProxyType(
            {
                int(row.batch_size): Executed(
                    row.compute_infer.count,
                    row.compute_input.ns + row.compute_infer.ns + row.compute_output.ns,
                )
                for row in sorted(one.batch_stats, key=lambda row: int(row.batch_size))
            }
        ),
    )
