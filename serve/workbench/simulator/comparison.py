"""Comparing: every scaler under every load, seed by seed, beside one that knows what comes.

A scaler is told by two numbers: the share of calls that were late, and what its replicas cost as a
multiple of the oracle's. Each has its usual parameter, and others that its users might choose: so
it is seen at its best, too.

A fleet of a fixed size is compared at equal lateness: it is the smallest that has no larger share
of late calls than this project's policy. Who knows all calls chooses it `in hindsight`; who knows
those of the first half of the time chooses it `by the first half`, and keeps it.

The oracle: it knows what comes, so nobody can do with much less; everybody is told beside it.

This project's policy in a fleet: what the control plane would see, every five seconds.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serve.capacity.scaling import policy
from serve.capacity.scaling.replica_capacity import Learned
from serve.capacity.scaling.signals import Bounds, ModelSignal, PoolSignal
from serve.workbench.simulator.baselines import (
    Fixed,
    HpaCalls,
    HpaUtilisation,
    Kpa,
    Ray,
    TickWindow,
)
from serve.workbench.simulator.fleet import simulate
from serve.workbench.simulator.loads import Floats, arrivals
from serve.workbench.simulator.seen import FleetCourse, SeenTick, SimulatedScaler, SimulatedServer

# --- this project's policy in a fleet -------------------------------------------------------------


class Ours:
    """`capacity/scaling/policy.py`, with a capacity that is learned from executions.

    `bounds` are what people allow. `began`: when the control plane started, in seconds.
    """

    def __init__(
        self, server: SimulatedServer, bounds: Bounds, *, began: float = -policy.RESTARTED
    ) -> None:
        self._server = server
        self._bounds = bounds
        self._state = policy.begin(began)
        self._learned = Learned(server.limit, instances=1, largest=server.largest)
        self._recent, self._lately = TickWindow(5.0), TickWindow(15.0)
        self._calls, self._late = TickWindow(60.0), TickWindow(60.0)
        self._queued, self._computed = TickWindow(60.0), TickWindow(60.0)
        self._executions: Counter[int] = Counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._answered = 0
        self._wish: int | None = None
        self._decided = 0.0
        self._called = 0.0  # when the last call came

    def __repr__(self) -> str:
        return f"<Ours wish={self._wish} {self._learned!r}>"

    def decide(self, seen: SeenTick) -> int:
        """Every five seconds; what was wished before meanwhile."""
        self._look(seen)
        if self._wish is not None and seen.at - self._decided < policy.TICK:
            return self._wish
        self._learn(seen)
        self._decided = seen.at
        self._state, hint = policy.decide(self._state, self._signal(seen), self._bounds)
        self._wish = hint.desired
        return hint.desired

    def _look(self, seen: SeenTick) -> None:
        at = seen.at
        self._recent.add(at, seen.calls)
        self._lately.add(at, seen.calls)
        self._calls.add(at, seen.calls)
        self._late.add(at, seen.late)
        self._queued.add(at, seen.queued)
        self._computed.add(at, seen.computed)
        for rows, (count, seconds) in seen.executions.items():
            self._executions[rows] += count
            self._seconds[rows] += seconds
        self._answered += seen.answered
        if seen.calls:
            self._called = at

    def _learn(self, seen: SeenTick) -> None:
        """As the control plane reads Triton's counts: once a round."""
        risen = {rows: (count, self._seconds[rows]) for rows, count in self._executions.items()}
        self._learned.add(risen, seen.at)
        passed = seen.at - self._decided
        if seen.ready and passed:
            rate = self._answered / passed / seen.ready
            self._learned.saturated(rate, seen.waiting / seen.ready, seen.at)
        self._executions.clear()
        self._seconds.clear()
        self._answered = 0

    def _signal(self, seen: SeenTick) -> PoolSignal:
        came, computed = self._calls.total, self._computed.total
        model = ModelSignal(
            "m",
            recent=self._recent.mean,
            lately=self._lately.mean,
            waiting=float(seen.waiting),
            capacity=self._learned.capacity(seen.at),
            holding=seen.ready,
            limit=self._server.limit,
            missed=min(1.0, self._late.total / came) if came else None,
            pressure=self._queued.total / computed if computed else None,
        )
        return PoolSignal(
            "p",
            seen.at,
            seen.ready,
            seen.starting,
            (model,),
            cold_start=self._server.cold_start,
            idle=seen.at - self._called,
        )


# --- the oracle -----------------------------------------------------------------------------------


_SMOOTHED = 30  # seconds; bursts that are shorter nobody follows


class Oracle:
    """`plan`: replicas wished for, second by second."""

    def __init__(self, plan: Sequence[int]) -> None:
        self._plan = plan

    def __repr__(self) -> str:
        return f"<Oracle for {len(self._plan)} s, at most {max(self._plan)} replicas>"

    @classmethod
    def knowing(
        cls,
        times: Floats,
        seconds: float,
        server: SimulatedServer,
        capacity: float,
        *,
        least: int = 1,
    ) -> "Oracle":
        """As few as bear what comes; replicas are wished for a cold start before.

        `capacity`: what it lets a replica bear, in calls per second.
        """
        count = math.ceil(seconds) + 1
        rates = np.bincount(np.floor(times).astype(np.int64), minlength=count).astype(float)
        smooth = np.convolve(rates, np.ones(_SMOOTHED) / _SMOOTHED, mode="same")
        needs = np.ceil(np.maximum(smooth, 0) / capacity)
        ahead = int(server.cold_start) + 1
        plan = [max(least, int(needs[at : at + ahead + 1].max(initial=0))) for at in range(count)]
        return cls(plan)

    def decide(self, seen: SeenTick) -> int:
        """What will be needed when it has started."""
        return self._plan[min(int(seen.at), len(self._plan) - 1)]


# --- comparing ------------------------------------------------------------------------------------


OURS, ORACLE = "servegate", "oracle"
CALLS, UTILISATION, KPA, RAY = "hpa-calls", "hpa-utilisation", "kpa", "ray"
FIXED, HINDSIGHT, FIRST_HALF = "fixed", "in hindsight", "by the first half"
_HOUR = 3600.0
_FULL = 0.85  # share of the capacity that the oracle uses, and what a run begins with


@dataclass(frozen=True, slots=True)
class Scene:
    """What all are compared on: `mean` calls per second over `seconds`, and people's bounds."""

    server: SimulatedServer
    mean: float
    seconds: float
    least: int = 1
    most: int = 60

    @property
    def first(self) -> int:
        """Replicas in the beginning: enough for the mean."""
        enough = round(self.mean / (_FULL * self.server.capacity))
        return min(max(1, self.least, enough), self.most)


class SimulatedRun:
    """One load with one seed: the same calls for everybody."""

    def __init__(self, scene: Scene, times: Floats, seed: int) -> None:
        self.scene = scene
        self._times = times
        self._seed = seed

    def __repr__(self) -> str:
        return f"<SimulatedRun of {len(self._times)} calls, seed {self._seed}>"

    @cached_property
    def ours(self) -> FleetCourse:
        """With this project's policy."""
        return self.course(Ours(self.scene.server, Bounds(self.scene.least, self.scene.most)))

    def course(
        self, scaler: SimulatedScaler, *, first: int | None = None, part: float = 1.0
    ) -> FleetCourse:
        """With this scaler, in this part of the time; `first` replicas, or enough for the mean."""
        scene, seconds = self.scene, part * self.scene.seconds
        return simulate(
            self._times[self._times < seconds],
            scene.server,
            scaler,
            first=scene.first if first is None else first,
            seconds=seconds,
            seed=self._seed,
        )

    def constant(self, count: int, *, part: float = 1.0) -> FleetCourse:
        """With so many replicas all the time."""
        return self.course(Fixed(count), first=count, part=part)


@dataclass(frozen=True, slots=True)
class Variant:
    """A scaler with one parameter. `is_usual`: it is what its documentation sets."""

    scaler: str
    parameter: str
    is_usual: bool
    play: Callable[[SimulatedRun], FleetCourse]

    def __str__(self) -> str:
        return f"{self.scaler} {self.parameter}".rstrip()


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One variant under one load with one seed.

    `late`: the share of calls, 0 to 1. `hours`: of replicas; `cost`: ÷ the oracle's. `turns`: the
    changes of direction in an hour.
    """

    load: str
    seed: int
    scaler: str
    parameter: str
    is_usual: bool
    late: float
    hours: float
    cost: float
    turns: float


def variants() -> tuple[Variant, ...]:
    """All that are compared, this project's first."""
    return (
        Variant(OURS, "", True, lambda run: run.ours),
        Variant(FIXED, HINDSIGHT, True, _fixed(1.0)),
        Variant(FIXED, FIRST_HALF, True, _fixed(0.5)),
        *(_calls(share) for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        *(_utilisation(share) for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        *(_kpa(share) for share in (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)),
        *(_ray(target) for target in (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0)),
    )


def compare(
    scene: Scene, load: str, seed: int, those: Sequence[Variant], *, times: Floats | None = None
) -> Iterator[SimulationResult]:
    """All variants under one load; `times` instead of those that the load's name gives."""
    came = arrivals(load, scene.mean, scene.seconds, seed) if times is None else times
    run = SimulatedRun(scene, came, seed)
    bears = _FULL * scene.server.capacity
    knowing = Oracle.knowing(came, scene.seconds, scene.server, bears, least=scene.least)
    best = run.course(knowing)
    yield _result(load, seed, (ORACLE, "", True), best, best)
    for each in those:
        named = each.scaler, each.parameter, each.is_usual
        yield _result(load, seed, named, each.play(run), best)


def _scaled(make: Callable[[Scene], SimulatedScaler]) -> Callable[[SimulatedRun], FleetCourse]:
    return lambda run: run.course(make(run.scene))


def _fixed(part: float) -> Callable[[SimulatedRun], FleetCourse]:
    """The smallest fleet that was late no more often than ours, as far as this part tells."""

    def play(run: SimulatedRun) -> FleetCourse:
        allowed = run.ours.share_late

        def is_enough(count: int) -> bool:
            return run.constant(count, part=part).share_late <= allowed

        most = min(max(run.ours.ready), run.scene.most)
        if not is_enough(most):
            most = run.scene.most
        counts = range(run.scene.least, most)
        return run.constant(run.scene.least + bisect_left(counts, True, key=is_enough))

    return play


def _result(
    load: str, seed: int, named: tuple[str, str, bool], course: FleetCourse, best: FleetCourse
) -> SimulationResult:
    return SimulationResult(
        load,
        seed,
        *named,
        late=course.share_late,
        hours=course.cost / _HOUR,
        cost=course.cost / best.cost,
        turns=course.turns * _HOUR / course.seconds,
    )


def _calls(share: float) -> Variant:
    def make(scene: Scene) -> SimulatedScaler:
        target = share * scene.server.capacity
        return HpaCalls(target, least=scene.least, most=scene.most)

    return Variant(CALLS, f"{100 * share:.0f} %", share == 0.7, _scaled(make))


def _utilisation(share: float) -> Variant:
    def make(scene: Scene) -> SimulatedScaler:
        return HpaUtilisation(share, least=scene.least, most=scene.most)

    return Variant(UTILISATION, f"{100 * share:.0f} %", share == 0.7, _scaled(make))


def _kpa(share: float) -> Variant:
    def make(scene: Scene) -> SimulatedScaler:
        return Kpa(share * scene.server.largest, least=scene.least, most=scene.most)

    return Variant(KPA, f"{100 * share:.0f} %", share == 0.7, _scaled(make))


def _ray(target: float) -> Variant:
    def make(scene: Scene) -> SimulatedScaler:
        return Ray(target, least=scene.least, most=scene.most)

    return Variant(RAY, f"{target:g}", target == 2.0, _scaled(make))
