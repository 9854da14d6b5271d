"""Comparing: every scaler under every load, seed by seed, beside one that knows what comes.

A scaler is told by two numbers: the share of calls that were late, and what its replicas cost as a
multiple of the oracle's. Each has its usual parameter, and others that its users might choose: so
it is seen at its best, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from serve.capacity.fleets.fleet import Course, Scaler, Server, simulate
from serve.capacity.fleets.loads import Floats, arrivals
from serve.capacity.fleets.scalers import Hpa, Kpa, Oracle, Ours, Ray, per_replica, utilisation
from serve.capacity.scaling.policy import UP
from serve.capacity.scaling.signals import Bounds

ORACLE = "oracle"
MOST = 60  # replicas


@dataclass(frozen=True, slots=True)
class Scene:
    """What all are compared on: `mean` calls per second over `seconds`."""

    server: Server
    mean: float
    seconds: float

    @property
    def capacity(self) -> float:
        """Calls per second that one replica bears with full batches."""
        return self.server.largest / self.server.service.time(self.server.largest)

    @property
    def first(self) -> int:
        """Replicas in the beginning: enough for the mean."""
        return max(1, round(self.mean / (UP * self.capacity)))


@dataclass(frozen=True, slots=True)
class Variant:
    """A scaler with one parameter. `is_usual`: it is what its documentation sets."""

    name: str
    parameter: str
    is_usual: bool
    make: Callable[[Scene], Scaler]

    def __str__(self) -> str:
        return f"{self.name} {self.parameter}".rstrip()


@dataclass(frozen=True, slots=True)
class Result:
    """One variant under one load with one seed. `cost`: ÷ the oracle's. `turns` per hour."""

    load: str
    seed: int
    variant: str
    late: float
    cost: float
    turns: float


def variants() -> tuple[Variant, ...]:
    """All that are compared, this project's first."""
    return (
        Variant("ours", "", True, lambda scene: Ours(scene.server, Bounds(1, MOST))),
        *(_qps(share) for share in (0.5, 0.6, 0.7, 0.8, 0.9)),
        *(_utilisation(share) for share in (0.5, 0.6, 0.7, 0.8)),
        *(_kpa(share) for share in (0.3, 0.5, 0.7, 0.9)),
        *(_ray(target) for target in (1.0, 2.0, 4.0, 8.0)),
    )


def compare(
    scene: Scene, load: str, seed: int, those: Sequence[Variant], *, times: Floats | None = None
) -> Iterator[Result]:
    """All variants under one load; `times` instead of those that the load's name gives."""
    came = arrivals(load, scene.mean, scene.seconds, seed) if times is None else times
    knowing = Oracle.knowing(came, scene.seconds, scene.server, UP * scene.capacity)
    best = _course(scene, came, knowing, seed)
    yield _result(load, seed, ORACLE, best, best, scene)
    for each in those:
        yield _result(
            load, seed, str(each), _course(scene, came, each.make(scene), seed), best, scene
        )


def _course(scene: Scene, times: Floats, scaler: Scaler, seed: int) -> Course:
    return simulate(
        times, scene.server, scaler, first=scene.first, seconds=scene.seconds, seed=seed
    )


def _result(
    load: str, seed: int, variant: str, course: Course, best: Course, scene: Scene
) -> Result:
    turns = course.turns * 3600.0 / scene.seconds
    return Result(load, seed, variant, course.share_late, course.cost / best.cost, turns)


def _qps(share: float) -> Variant:
    return Variant(
        "hpa calls",
        f"{100 * share:.0f} %",
        share == 0.7,
        lambda scene: Hpa(per_replica, share * scene.capacity, least=1, most=MOST),
    )


def _utilisation(share: float) -> Variant:
    return Variant(
        "hpa utilisation",
        f"{100 * share:.0f} %",
        share == 0.7,
        lambda scene: Hpa(utilisation, share, least=1, most=MOST),
    )


def _kpa(share: float) -> Variant:
    return Variant(
        "kpa",
        f"{100 * share:.0f} %",
        share == 0.7,
        lambda scene: Kpa(share * scene.server.largest, least=1, most=MOST),
    )


def _ray(target: float) -> Variant:
    return Variant(
        "ray", f"{target:g}", target == 2.0, lambda scene: Ray(target, least=1, most=MOST)
    )
