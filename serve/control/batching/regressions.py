"""Watching: whether callers are served as well after a change as before it.

What the gateway has counted of a model in a window before the change is held against a window
after it. Calls beyond the objective's limit, and errors, are taken to be independent of each other,
so their number in n calls has about the standard deviation of a Poisson number, √expected.

| in the window after                                              | then                         |
|------------------------------------------------------------------|------------------------------|
| fewer calls than `FEW`, or so few before                         | nobody can tell              |
| more errors than the share before gives, by 4 deviations         | taken back at once           |
| more slow calls than the objective allows, by 4 deviations       | taken back at once           |
| the same by 2 deviations, at its end                             | taken back                   |
| otherwise                                                        | it stays                     |

Slow calls count only where the objective was met before.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from serve.control.live.gateway_metrics import GatewayReading
from serve.control.live.rises import bucket_rises, rise
from serve.core.objectives import Objective

FEW = 50  # calls
AT_ONCE, AT_THE_END = 4.0, 2.0  # standard deviations


@dataclass(frozen=True, slots=True)
class CallWindow:
    """What came of a model's calls in a time: all, those beyond the limit, and those that failed.

    `slow` may be a fraction: calls lie evenly within a bucket.
    """

    calls: float = 0.0
    slow: float = 0.0
    errors: float = 0.0

    @classmethod
    def of(cls, page: Mapping[str, float]) -> "CallWindow":
        """Read what `to_json` gave."""
        return cls(float(page["calls"]), float(page["slow"]), float(page["errors"]))

    def to_json(self) -> dict[str, float]:
        """Plain values, rounded for people."""
        return {name: round(getattr(self, name), 1) for name in ("calls", "slow", "errors")}


@dataclass(frozen=True, slots=True)
class ChangeVerdict:
    """`why` says why a change has to be taken back; empty if it may stay. `told` is for people."""

    why: str = ""
    told: str = ""


def window(
    model: str, objective: Objective | None, before: GatewayReading, now: GatewayReading
) -> CallWindow:
    """What happened between two readings."""
    buckets = bucket_rises(before.buckets.get(model, {}), now.buckets.get(model, {}))
    timed = buckets.get(math.inf, 0.0)
    slow = timed - _within(objective.limit, buckets) if objective else 0.0
    calls = sum(
        rise(before.calls.get(where, 0.0), count)
        for where, count in now.calls.items()
        if where[0] == model
    )
    errors = sum(
        rise(before.errors.get(key, 0.0), count)
        for key, count in now.errors.items()
        if key[0][0] == model
    )
    return CallWindow(calls, slow, errors)


def judged(
    before: CallWindow, after: CallWindow, objective: Objective | None, *, ended: bool = False
) -> ChangeVerdict:
    """What a window after a change says; `ended` when no more calls will be in it."""
    if before.calls < FEW or after.calls < FEW:
        counts = f"{before.calls:.0f} before the change and {after.calls:.0f} after it"
        return ChangeVerdict(told=f"too few calls to compare: {counts}")
    expected = after.calls * (before.errors + 1) / (before.calls + 1)
    if _exceeds(after.errors, expected, AT_ONCE):
        shares = (f"{one.errors:.0f} of {one.calls:.0f} calls" for one in (after, before))
        return ChangeVerdict(why="{} failed after the change, {} before it".format(*shares))
    if objective is None:
        return ChangeVerdict(told="the model has no objective, so only errors were watched")
    allowed = 1 - objective.quantile / 100
    if before.slow > before.calls * allowed:
        return ChangeVerdict(told=f"{objective} was not met before the change either")
    deviations = AT_THE_END if ended else AT_ONCE
    slow = f"{after.slow:.0f} of {after.calls:.0f} calls took longer"
    if _exceeds(after.slow, after.calls * allowed, deviations):
        return ChangeVerdict(
            why=f"{objective} was met before the change and is missed after it: {slow}"
        )
    return ChangeVerdict(told=f"{objective} is met: {slow}")


def _exceeds(count: float, expected: float, deviations: float) -> bool:
    return count > expected + deviations * math.sqrt(max(expected, 1.0))


def _within(limit: float, buckets: Mapping[float, float]) -> float:
    """How many calls took up to `limit` seconds; within a bucket they are taken to lie evenly."""
    low, below = 0.0, 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if bound >= limit:
            if bound == math.inf:
                return below
            return below + (count - below) * (limit - low) / (bound - low)
        low, below = bound, count
    return below
