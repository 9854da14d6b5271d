"""Models as they are called: for each that is, what came, what waits, and what was promised."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from serve.control.batching.observer import BatchingObserver, Slot
from serve.control.decisions import Decisions
from serve.control.scaling.arrivals import Came, ModelArrivals
from serve.control.scaling.setups import SetUp, Setups
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.core.snapshot import ModelView, Snapshot

REMEMBERED = 7200.0  # seconds after its last call for which a model is told of
_UNKNOWN = SetUp()


@dataclass(frozen=True, slots=True)
class Called:
    """One model. `slots` are its versions as Triton knows them, `pools` where it is held."""

    name: str
    slots: tuple[Slot, ...]
    pools: tuple[str, ...]
    came: Came
    objective: Objective | None

    @property
    def limit(self) -> float | None:
        """The objective's, in seconds."""
        return None if self.objective is None else self.objective.limit

    @property
    def allowed(self) -> float:
        """The share of calls that may take longer; without an objective none may be refused."""
        return 0.01 if self.objective is None else 1.0 - self.objective.quantile / 100


def called(
    snapshot: Snapshot,
    decisions: Decisions,
    arrivals: ModelArrivals,
    *,
    woken: Collection[str],
    now: float,
) -> Iterator[Called]:
    """All that somebody calls, has called not long ago, or waits for."""
    since = now - REMEMBERED
    names = {name for name, at in arrivals.called.items() if at > since} | set(woken)
    for name in sorted(names & snapshot.models.keys()):
        view, pools = snapshot.models[name], decisions.pools(name)
        objective = _objective(decisions.objective(name))
        yield Called(name, _slots(view), pools, arrivals.of(name), objective)


def waiting(
    one: Called,
    holders: Mapping[str, Collection[str]],
    observer: BatchingObserver,
    setups: Setups,
) -> float:
    """Calls of a model that wait now, in Triton and in the gateway; `holders` by pool.

    Where nobody holds it all of them do. Where a replica does not tell, those wait of which its
    instances cannot be executing any.
    """
    told, room, silent = 0.0, 0.0, False
    for pool, names in holders.items():
        for name in names:
            newest = observer.newest(name)
            readings = newest.readings if newest else None
            silent = silent or readings is None
            for slot in one.slots:
                setup = setups.of(pool, slot[0]) or _UNKNOWN
                room += setup.instances * max(1, setup.largest)
                reading = readings.models.get(slot) if readings else None
                told += reading.pending if reading else 0
    if not any(holders.values()):
        return one.came.in_flight
    return max(told, one.came.in_flight - room) if silent else told


def _slots(view: ModelView) -> tuple[Slot, ...]:
    return tuple((one.physical_name, one.physical_version) for one in view.targets.values())


def _objective(text: str) -> Objective | None:
    try:
        return Objective.parse(text) if text else None
    except Invalid:
        return None
