"""What Triton counted during a run, by subtracting its statistics reading by reading.

Triton counts from zero when it starts or loads a version anew, and a worker of the gateway has only
seen the falls since it was first asked (`wire/statistics.py`). So a step in which any counter of a
version falls adds nothing: what was counted between these two readings is lost, which is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from serve.wire.statistics import has_fallen
from serve.workbench.loadtest.observed import TritonTimes

Entry = Mapping[str, Any]


class TritonCounts:
    """The rises of one model's counters; readings are `model_stats` of Triton's JSON."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._last: dict[str, Entry] | None = None
        self._rises: dict[str, Counter[str]] = {}
        self._batches: dict[str, Counter[int]] = {}
        self._falls: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<TritonCounts of {self._model} versions={sorted(self._rises)}>"

    def add(self, page: Any) -> None:
        """One reading, of all versions that are there; the first one is where counting begins.

        Raises `ValueError`, `KeyError` or `TypeError` for what is no statistics.
        """
        entries = {str(one["version"]): dict(one) for one in page["model_stats"]}
        if self._last is None:
            self._last = {}
            for version, entry in entries.items():
                self._last[version] = entry
                _numbers(entry)
            return
        for version, entry in entries.items():
            self._step(version, self._last.get(version, {}), entry)
        self._last |= entries

    @property
    def times(self) -> tuple[TritonTimes, ...]:
        """Of each version that has done anything."""
        return tuple(
            _times(version, self._rises[version], self._batches[version])
            for version in sorted(self._rises, key=_order)
            if self._rises[version].total()
        )

    @property
    def requests(self) -> int:
        """Successful ones, of all versions."""
        return sum(rises["success.count"] for rises in self._rises.values())

    @property
    def mean_request(self) -> float | None:
        """Triton's own mean seconds for a successful request; None without any."""
        nanoseconds = sum(rises["success.ns"] for rises in self._rises.values())
        return nanoseconds / self.requests / 1e9 if self.requests else None

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each version whose counters fell."""
        return tuple(
            f"Triton's counters of {self._model} version {version} decreased during the "
            f"run{f' {times} times' if times > 1 else ''}, because a replica restarted or "
            "reloaded it; the counts since the previous reading are lost"
            for version, times in sorted(self._falls.items())
        )

    def _step(self, version: str, before: Entry, now: Entry) -> None:
        rises = self._rises.setdefault(version, Counter())
        batches = self._batches.setdefault(version, Counter())
        if has_fallen(dict(before), dict(now)):
            self._falls[version] += 1
            return
        rises.update(_numbers(now))
        rises.subtract(_numbers(before))
        batches.update(_executions(now))
        batches.subtract(_executions(before))


def _numbers(entry: Entry) -> dict[str, int]:
    """The counters of a version, flat; what is not told is 0."""
    found = {name: int(entry.get(name, 0)) for name in ("inference_count", "execution_count")}
    for name, pair in entry.get("inference_stats", {}).items():
        found |= {f"{name}.{part}": int(pair.get(part, 0)) for part in ("count", "ns")}
    return found


def _executions(entry: Entry) -> dict[int, int]:
    return {
        int(row["batch_size"]): int(row["compute_infer"].get("count", 0))
        for row in entry.get("batch_stats", ())
    }


def _times(version: str, rises: Counter[str], batches: Counter[int]) -> TritonTimes:
    def mean(part: str) -> float:
        count = rises[f"{part}.count"]
        return rises[f"{part}.ns"] / count / 1e9 if count else 0.0

    return TritonTimes(
        version=version,
        requests=rises["success.count"] + rises["fail.count"],
        failures=rises["fail.count"],
        rows=rises["inference_count"],
        executions=rises["execution_count"],
        queue=mean("queue"),
        input=mean("compute_input"),
        infer=mean("compute_infer"),
        output=mean("compute_output"),
        batches={size: count for size, count in sorted(batches.items()) if count > 0},
    )


def _order(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else 0, version)
