"""What people use today, each as its source has it, with that source's defaults.

| scaler | its rule                                                                                |
|--------|-----------------------------------------------------------------------------------------|
| fixed  | the same number all the time                                                            |
| hpa    | Kubernetes: every 15 s ⌈replicas · value ÷ target⌉, beyond a tolerance of 0.1; up by    |
|        | 100 % or 4 pods in 15 s, down by the most of the last 300 s                             |
| kpa    | Knative: every 2 s, concurrency over 60 s, or over 6 s in a panic (twice as much as     |
|        | there is), which lasts 60 s and never goes down; else down to a half at most            |
| ray    | Ray Serve: ongoing calls over 30 s ÷ target; up after 30 s of the same wish, down after |
|        | 600 s                                                                                   |

Sources, read in November 2026: kubernetes/kubernetes `pkg/controller/podautoscaler`
(`replica_calculator.go`, `horizontal.go`) and `pkg/apis/autoscaling/v2/defaults.go`;
knative/serving `pkg/autoscaler/scaling/autoscaler.go`, `multiscaler.go`, and
`config/core/configmaps/autoscaler.yaml`; ray-project/ray `python/ray/serve/autoscaling_policy.py`,
`config.py` and `_private/constants.py`.

Where they leave something to what surrounds them, it is kind to them here: values are a second old
at most, where scrapes and pushes take 10 to 30 s, and HPA may double at each of its rounds.

Windows: what was seen in the last seconds, as metrics systems keep it.
"""

import math
from abc import ABC, abstractmethod
from collections import deque

from serve.workbench.simulator.seen import SeenTick

# --- windows --------------------------------------------------------------------------------------


class TickWindow:
    """Values of the last seconds, tick by tick; a value that is as old as the window is gone."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._times: deque[float] = deque()
        self.values: deque[float] = deque()

    def __repr__(self) -> str:
        return f"<TickWindow of {self._seconds:g} s, {len(self.values)} values>"

    def add(self, at: float, value: float) -> None:
        """One tick's."""
        self._times.append(at)
        self.values.append(value)
        while self._times[0] <= at - self._seconds:
            self._times.popleft()
            self.values.popleft()

    @property
    def total(self) -> float:
        """0 without any."""
        return sum(self.values)

    @property
    def mean(self) -> float:
        """0 without any."""
        return sum(self.values) / len(self.values) if self.values else 0.0


# --- baselines ------------------------------------------------------------------------------------


_EXACT = 1e-9  # what is only the arithmetic's


def whole(replicas: float) -> int:
    """Rounded up, as all of them do."""
    return math.ceil(replicas - _EXACT)


class Fixed:
    """A fleet that nothing scales."""

    def __init__(self, count: int) -> None:
        self._count = count

    def decide(self, seen: SeenTick) -> int:
        """The same at each tick."""
        return self._count


class Hpa(ABC):
    """Kubernetes' `HorizontalPodAutoscaler` in its default behaviour.

    Subclasses say what it asks for. A value is the mean of `WINDOW` seconds, as metrics systems
    tell it.
    """

    PERIOD = 15.0  # --horizontal-pod-autoscaler-sync-period
    TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance
    STABLE = 300.0  # scaleDown.stabilizationWindowSeconds; scaleUp's is 0
    SHARE, PODS = 1.0, 4  # scaleUp.policies, the larger: 100 % or 4 pods in 15 s
    WINDOW = 30.0  # seconds

    def __init__(self, target: float, *, least: int, most: int) -> None:
        self._target = target
        self._least, self._most = least, most
        self._values = TickWindow(self.WINDOW)
        self._asked = TickWindow(self.STABLE)
        self._decided = -math.inf
        self._wish = 0

    def decide(self, seen: SeenTick) -> int:
        """Every 15 seconds; what was wished before meanwhile."""
        self._values.add(seen.at, self._value(seen))
        if seen.at - self._decided < self.PERIOD:
            return self._wish
        there = seen.ready + seen.starting
        if self._decided == -math.inf:  # horizontal.go: recordInitialRecommendation
            self._asked.add(seen.at, there)
        self._decided = seen.at
        asked = self._asks(self._values.mean, seen)
        self._asked.add(seen.at, asked)
        if asked > there:
            limit = max(math.ceil(there * (1 + self.SHARE)), there + self.PODS)
            wish = min(asked, limit)
        else:
            wish = min(there, int(max(self._asked.values)))
        self._wish = min(max(wish, self._least), self._most)
        return self._wish

    @abstractmethod
    def _value(self, seen: SeenTick) -> float:
        """What is told of this second."""

    @abstractmethod
    def _asks(self, value: float, seen: SeenTick) -> int:
        """How many replicas the mean of what was told asks for."""


class HpaCalls(Hpa):
    """On the calls per second of all, an external metric of type AverageValue, as KEDA makes it."""

    def _value(self, seen: SeenTick) -> float:
        return float(seen.calls)  # of a tick of one second

    def _asks(self, value: float, seen: SeenTick) -> int:
        return external(value, self._target, seen.ready + seen.starting, self.TOLERANCE)


class HpaUtilisation(Hpa):
    """On the share of time in which GPUs do something, as NVML tells it: a metric of type Pods."""

    def _value(self, seen: SeenTick) -> float:
        return seen.busy

    def _asks(self, value: float, seen: SeenTick) -> int:
        return of_pods(value / self._target, seen.ready, seen.starting, self.TOLERANCE)


def external(value: float, target: float, there: int, tolerance: float) -> int:
    """`GetExternalPerPodMetricReplicas`: value ÷ target, unless that is what is there, nearly."""
    if there and abs(1 - value / (target * there)) <= tolerance:
        return there
    return whole(value / target)


def of_pods(ratio: float, ready: int, starting: int, tolerance: float) -> int:
    """`calcPlainMetricReplicas`, for a mean value ÷ target of those that are ready.

    To go up, those that start count as if their value were 0; what is left must still go up.
    """
    there = ready + starting
    if not ready:
        return there
    if not starting or ratio <= 1:
        return there if abs(1 - ratio) <= tolerance else whole(ratio * ready)
    ratio *= ready / there
    return there if ratio <= 1 + tolerance else whole(ratio * there)


class Kpa:
    """Knative's pod autoscaler on concurrency; `target` calls at a replica."""

    PERIOD = 2.0  # multiscaler.go: tickInterval
    STABLE, PANIC = 60.0, 6.0  # stable-window, panic-window-percentage 10
    THRESHOLD = 2.0  # panic-threshold-percentage 200
    UP, DOWN = 1000.0, 2.0  # max-scale-up-rate, max-scale-down-rate

    def __init__(self, target: float, *, least: int, most: int) -> None:
        self._target, self._least, self._most = target, least, most
        self._long, self._short = TickWindow(self.STABLE), TickWindow(self.PANIC)
        self._decided = -math.inf
        self._panicked: float | None = None
        self._highest = 0
        self._wish = 0

    def decide(self, seen: SeenTick) -> int:
        """Every two seconds; what was wished before meanwhile."""
        self._long.add(seen.at, seen.inside)
        self._short.add(seen.at, seen.inside)
        if seen.at - self._decided < self.PERIOD:
            return self._wish
        if self._decided == -math.inf and seen.ready > 1:  # it begins in a panic, and holds
            self._panicked, self._highest = seen.at, seen.ready
        self._decided = seen.at
        ready = max(1, seen.ready)
        stable, panic = (whole(each.mean / self._target) for each in (self._long, self._short))
        wish = self._panics(seen.at, ready, self._limited(stable, ready), panic)
        self._wish = min(max(wish, self._least), self._most)
        return self._wish

    def _limited(self, count: int, ready: int) -> int:
        return min(max(count, math.floor(ready / self.DOWN)), math.ceil(ready * self.UP))

    def _panics(self, at: float, ready: int, stable: int, panic: int) -> int:
        """What it wants, after going into a panic or out of it."""
        if panic / ready >= self.THRESHOLD:
            self._panicked = at
        elif self._panicked is not None and at - self._panicked > self.STABLE:
            self._panicked, self._highest = None, 0
        if self._panicked is None:
            return stable
        self._highest = max(self._highest, stable, self._limited(panic, ready))
        return self._highest


class Ray:
    """Ray Serve's default policy; `target` ongoing calls at a replica."""

    LOOK_BACK = 30.0  # look_back_period_s
    UP, DOWN = 30.0, 600.0  # upscale_delay_s, downscale_delay_s

    def __init__(self, target: float, *, least: int, most: int) -> None:
        self._target, self._least, self._most = target, least, most
        self._inside = TickWindow(self.LOOK_BACK)
        self._since: tuple[int, float] = (0, 0.0)  # the direction of the wish, and since when

    def decide(self, seen: SeenTick) -> int:
        """At each tick; the source decides ten times a second."""
        self._inside.add(seen.at, seen.inside)
        there = seen.ready + seen.starting
        wants = whole(self._inside.mean / self._target)
        wants = min(max(wants, self._least), self._most)
        direction = (wants > there) - (wants < there)
        if direction != self._since[0]:
            self._since = (direction, seen.at)
        delay = self.UP if direction > 0 else self.DOWN
        if direction and seen.at - self._since[1] >= delay:
            self._since = (0, seen.at)
            return wants
        return there
