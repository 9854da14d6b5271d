"""Comparing: every scaler under every load, seed by seed, beside one that knows what comes.

A scaler is told by two numbers: the share of calls that were late, and what its replicas cost as a
multiple of the oracle's. Each has its usual parameter, and others that its users might choose: so
it is seen at its best, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from serve.capacity.fleets.baselines import HpaCalls, HpaUtilisation, Kpa, Ray
from serve.capacity.fleets.fleet import simulate
from serve.capacity.fleets.loads import Floats, arrivals
from serve.capacity.fleets.oracle import Oracle
from serve.capacity.fleets.ours import Ours
from serve.capacity.fleets.seen import Course, Scaler, Server
from serve.capacity.scaling.signals import Bounds

OURS, ORACLE = "servegate", "oracle"
CALLS, UTILISATION, KPA, RAY = "hpa-calls", "hpa-utilisation", "kpa", "ray"
_HOUR = 3600.0
_FULL = 0.85  # share of the capacity that the oracle uses, and what a run begins with


@dataclass(frozen=True, slots=True)
class Scene:
    """What all are compared on: `mean` calls per second over `seconds`, and people's bounds."""

    server: Server
    mean: float
    seconds: float
    least: int = 1
    most: int = 60

    @property
    def first(self) -> int:
        """Replicas in the beginning: enough for the mean."""
        enough = round(self.mean / (_FULL * self.server.capacity))
        return min(max(1, self.least, enough), self.most)


@dataclass(frozen=True, slots=True)
class Variant:
    """A scaler with one parameter. `is_usual`: it is what its documentation sets."""

    scaler: str
    parameter: str
    is_usual: bool
    make: Callable[[Scene], Scaler]

    def __str__(self) -> str:
        return f"{self.scaler} {self.parameter}".rstrip()


@dataclass(frozen=True, slots=True)
class Result:
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
    ours = Variant(
        OURS, "", True, lambda scene: Ours(scene.server, Bounds(scene.least, scene.most))
    )
    return (
        ours,
        *(_calls(share) for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        *(_utilisation(share) for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        *(_kpa(share) for share in (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)),
        *(_ray(target) for target in (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0)),
    )


def compare(
    scene: Scene, load: str, seed: int, those: Sequence[Variant], *, times: Floats | None = None
) -> Iterator[Result]:
    """All variants under one load; `times` instead of those that the load's name gives."""
    came = arrivals(load, scene.mean, scene.seconds, seed) if times is None else times
    bears = _FULL * scene.server.capacity
    knowing = Oracle.knowing(came, scene.seconds, scene.server, bears, least=scene.least)
    best = _course(scene, came, knowing, seed)
    yield _result(load, seed, Variant(ORACLE, "", True, lambda _: knowing), best, best)
    for each in those:
        yield _result(load, seed, each, _course(scene, came, each.make(scene), seed), best)


def _course(scene: Scene, times: Floats, scaler: Scaler, seed: int) -> Course:
    return simulate(
        times, scene.server, scaler, first=scene.first, seconds=scene.seconds, seed=seed
    )


def _result(load: str, seed: int, variant: Variant, course: Course, best: Course) -> Result:
    return Result(
        load,
        seed,
        variant.scaler,
        variant.parameter,
        variant.is_usual,
        late=course.share_late,
        hours=course.cost / _HOUR,
        cost=course.cost / best.cost,
        turns=course.turns * _HOUR / course.seconds,
    )


def _calls(share: float) -> Variant:
    def make(scene: Scene) -> Scaler:
        target = share * scene.server.capacity
        return HpaCalls(target, least=scene.least, most=scene.most)

    return Variant(CALLS, f"{100 * share:.0f} %", share == 0.7, make)


def _utilisation(share: float) -> Variant:
    def make(scene: Scene) -> Scaler:
        return HpaUtilisation(share, least=scene.least, most=scene.most)

    return Variant(UTILISATION, f"{100 * share:.0f} %", share == 0.7, make)


def _kpa(share: float) -> Variant:
    def make(scene: Scene) -> Scaler:
        return Kpa(share * scene.server.largest, least=scene.least, most=scene.most)

    return Variant(KPA, f"{100 * share:.0f} %", share == 0.7, make)


def _ray(target: float) -> Variant:
    def make(scene: Scene) -> Scaler:
        return Ray(target, least=scene.least, most=scene.most)

    return Variant(RAY, f"{target:g}", target == 2.0, make)
