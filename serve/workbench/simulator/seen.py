"""What replicas can do, what is told of them tick by tick, and what became of a run."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serve.capacity.service import ServiceTime


@dataclass(frozen=True, slots=True)
class SimulatedServer:
    """What a replica can do. `limit`: the objective's, in seconds, of every call.

    `largest`: rows of a batch; a call has one row. `cold_start`: seconds until a wish is ready.
    """

    service: ServiceTime
    largest: int
    limit: float
    cold_start: float = 60.0

    @property
    def capacity(self) -> float:
        """Calls per second that a replica bears with full batches."""
        return self.largest / self.service.time(self.largest)


@dataclass(frozen=True, slots=True)
class SeenTick:
    """What is told of the last tick. Counts of calls are of the whole pool.

    `calls`: that came. `late`: answered beyond the limit, or refused. `answered`: of any kind.
    `waiting`, `running`: now; `inside`: the mean of both over the tick. `busy`: the mean share of
    the tick in which ready replicas executed; an execution counts when it ends, so it may be above
    1. `executions`: by rows, how many, and the seconds of all. `queued`, `computed`: seconds that
    answered calls spent so.
    """

    at: float
    ready: int
    starting: int
    calls: int
    late: int
    answered: int
    waiting: int
    running: int
    inside: float
    busy: float
    executions: Mapping[int, tuple[int, float]]
    queued: float
    computed: float


class SimulatedScaler(Protocol):
    """Who decides. A run has one of its own."""

    def decide(self, seen: SeenTick) -> int:
        """How many replicas there should be."""
        ...


@dataclass(frozen=True, slots=True)
class FleetCourse:
    """What became of it. `late`: calls beyond the limit or refused. `cost`: replica-seconds.

    `wanted`: after each tick, `ready` likewise.
    """

    calls: int
    late: int
    refused: int
    cost: float
    seconds: float
    wanted: tuple[int, ...] = field(repr=False)
    ready: tuple[int, ...] = field(repr=False)

    @property
    def share_late(self) -> float:
        """From 0 to 1."""
        return self.late / self.calls if self.calls else 0.0

    @property
    def turns(self) -> int:
        """How often the number of wanted replicas went the other way than before."""
        steps = [after - before for before, after in itertools.pairwise(self.wanted)]
        signs = [step > 0 for step in steps if step]
        return sum(one != other for one, other in itertools.pairwise(signs))
