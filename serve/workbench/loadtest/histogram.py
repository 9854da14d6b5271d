"""Latencies in logarithmic buckets that merge by addition (an HDR histogram).

A value is taken in whole microseconds. Below 2048 µs every microsecond has a bucket; above, every
power of two has 1024, so that a value read back is off by at most one part in 2048.

    e = max(0, ⌊log₂ µs⌋ − 10)      bucket = 1024·e + (µs >> e)

The largest time is 2⁴⁰ µs, some twelve days. A histogram is sparse: few buckets are ever used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from serve.tensors.datatypes import Array

_HALF = 1024
_MOST = 2**40


class Histogram:
    """Counts by bucket."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts = dict(counts or {})

    def __repr__(self) -> str:
        return f"<Histogram {self.count} values>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # it changes

    @classmethod
    def of(cls, seconds: Sequence[float] | Array) -> Histogram:
        """Of values in seconds; what is below 0 counts as 0."""
        made = cls()
        made.add(seconds)
        return made

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self._counts.values())

    def add(self, seconds: Sequence[float] | Array) -> None:
        """Many values at once, in seconds."""
        if len(seconds) == 0:
            return
        found, counts = np.unique(buckets(np.asarray(seconds, np.float64)), return_counts=True)
        for bucket, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def merge(self, other: Histogram) -> None:
        """Add another one's counts."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    @classmethod
    def merged(cls, many: Iterable[Histogram]) -> Histogram:
        """All of them in a new one."""
        made = cls()
        for each in many:
            made.merge(each)
        return made

    def quantile(self, share: float) -> float:
        """The smallest recorded time that `share` of all values do not exceed; nan if empty."""
        return self.quantiles((share,))[0]

    def quantiles(self, shares: Sequence[float]) -> tuple[float, ...]:
        """Several of them, in seconds."""
        if not self._counts:
            return tuple(float("nan") for _ in shares)
        places = np.array(sorted(self._counts))
        below = np.cumsum([self._counts[place] for place in places.tolist()])
        ranks = np.maximum(np.ceil(np.asarray(shares, np.float64) * below[-1] - 1e-9), 1)
        return tuple(middles(places[np.searchsorted(below, ranks)]).tolist())

    @property
    def mean(self) -> float:
        """In seconds; nan if empty."""
        return self.total / self.count if self._counts else float("nan")

    @property
    def total(self) -> float:
        """The sum of all values, in seconds."""
        places = np.array(list(self._counts), np.int64)
        return float(np.dot(middles(places), np.array(list(self._counts.values()), np.float64)))

    @property
    def largest(self) -> float:
        """In seconds; nan if empty."""
        return self.quantile(1.0)

    def above(self, seconds: float) -> int:
        """How many values exceed a time, by their buckets."""
        limit = int(buckets(np.array([seconds]))[0])
        return sum(count for bucket, count in self._counts.items() if bucket > limit)

    def to_json(self) -> list[list[int]]:
        """`[[buckets], [counts]]`, buckets in order."""
        places = sorted(self._counts)
        return [places, [self._counts[place] for place in places]]

    @classmethod
    def from_json(cls, page: Any) -> Histogram:
        """What `to_json` has made."""
        places, counts = page
        return cls(dict(zip(map(int, places), map(int, counts), strict=True)))


def buckets(seconds: Array) -> Array:
    """The bucket of each time."""
    micros = np.clip(np.rint(seconds * 1e6), 0, _MOST - 1).astype(np.int64)
    powers = np.maximum(np.frexp(np.maximum(micros, 1).astype(np.float64))[1] - 11, 0)
    found: Array = powers * _HALF + (micros >> powers)
    return found


def middles(places: Array) -> Array:
    """The time in the middle of each bucket, in seconds."""
    powers = np.maximum(places // _HALF - 1, 0)
    lowest = (places - powers * _HALF) << powers
    seconds: Array = (lowest + ((1 << powers) - 1) / 2) / 1e6
    return seconds
