"""What counters rose by between two readings, and what their buckets say of latency.

A counter that fell began again at zero meanwhile, so all it says is new, as Prometheus' `rate()`
has it. One that was not there before has counted from zero.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeVar

K = TypeVar("K")


def rise(before: float, now: float) -> float:
    """Of one counter."""
    return now - before if now >= before else now


def rises(before: Mapping[K, float], now: Mapping[K, float]) -> dict[K, float]:
    """Of each counter that there is now."""
    return {key: rise(before.get(key, 0.0), value) for key, value in now.items()}


def bucket_rises(before: Mapping[float, float], now: Mapping[float, float]) -> dict[float, float]:
    """Of one histogram: all its buckets begin again together."""
    if any(now.get(bound, 0.0) < count for bound, count in before.items()):
        before = {}
    return rises(before, now)


def add_buckets(histograms: Sequence[Mapping[float, float]]) -> dict[float, float]:
    """The histogram of all calls; all have the same bounds."""
    bounds = sorted({bound for one in histograms for bound in one})
    return {bound: sum(one.get(bound, 0.0) for one in histograms) for bound in bounds}


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """Up to how many seconds a share of the calls took; None without calls.

    `buckets` count the calls up to each bound. Within a bucket calls are taken to lie evenly, as
    Prometheus' `histogram_quantile` does; beyond the last bound it answers that bound.
    """
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]]:
        return None
    wanted = share * buckets[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted and count > below:
            if bound == inf:
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = (low if bound == inf else bound), count
    return low
