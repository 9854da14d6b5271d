"""Kubernetes' horizontal pod autoscaler, as far as one external metric and its behavior go.

Sources, of kubernetes/kubernetes, `pkg/controller/podautoscaler`: `replica_calculator.go`
(`GetExternalPerPodMetricReplicas`, `GetExternalMetricReplicas`, `Tolerances.isWithin`) and
`horizontal.go` (`normalizeDesiredReplicasWithBehaviors`); defaults of
`pkg/apis/autoscaling/v2/defaults.go`. Values are in thousandths, as the controller has them.
"""

import math
from dataclasses import dataclass, field

SYNC = 15.0  # seconds from one look to the next, --horizontal-pod-autoscaler-sync-period
THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class Rules:
    """Of one direction. `pods` and `percent` per 15 s: what a change may be at most, the greater
    of the two; `stabilization` in seconds."""

    tolerance: float = 0.1
    stabilization: float = 0.0
    pods: int = 0
    percent: int = 100


UP_DEFAULT = Rules(pods=4)
DOWN_DEFAULT = Rules(stabilization=300.0)


@dataclass(slots=True)
class Hpa:
    """One autoscaler whose pods are there as soon as they are wanted."""

    replicas: int
    up: Rules = UP_DEFAULT
    down: Rules = DOWN_DEFAULT
    least: int = 1
    most: int = 1000
    _recommended: list[tuple[float, int]] = field(default_factory=list)

    def look(self, value: float | None, target: float, at: float) -> int:
        """Replicas after one look; `value` is None when the metric cannot be had."""
        if value is None:
            return self.replicas
        wanted = average_value(
            self.replicas, round(value * THOUSAND), round(target * THOUSAND), self.up, self.down
        )
        wanted = self._stabilized(wanted, at)
        self.replicas = self._limited(min(max(wanted, self.least), self.most))
        return self.replicas

    def _stabilized(self, wanted: int, at: float) -> int:
        """The least of what was recommended lately on the way up, the most on the way down."""
        up = [n for when, n in self._recommended if when > at - self.up.stabilization]
        down = [n for when, n in self._recommended if when > at - self.down.stabilization]
        self._recommended.append((at, wanted))
        low, high = min([wanted, *up]), max([wanted, *down])
        return min(max(self.replicas, low), high)

    def _limited(self, wanted: int) -> int:
        """By the policies, both of whose periods are one look long."""
        rules = self.up if wanted > self.replicas else self.down
        share = self.replicas * rules.percent / 100
        if wanted > self.replicas:
            return min(wanted, self.replicas + max(rules.pods, math.ceil(share)))
        return max(wanted, self.replicas - max(rules.pods, math.ceil(share)))


def average_value(current: int, usage: int, target: int, up: Rules, down: Rules) -> int:
    """For a target of the kind AverageValue: what the metric says, if it is far enough away."""
    ratio = usage / (target * current) if current else math.inf
    if (1.0 - down.tolerance) <= ratio <= (1.0 + up.tolerance):
        return current
    return math.ceil(usage / target)
