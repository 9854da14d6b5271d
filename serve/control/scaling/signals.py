"""Signals: what is seen of every pool, put together from all that was read.

    gateway's metrics ──▶ Arrivals ────┐
    replicas ──▶ Observer ─▶ Capacities ├──▶ a ModelSignal per pool and model ──▶ a PoolSignal
    fleet ──▶ Presence, ColdStarts ────┘            ▲
                             what a group's pools bear of a model's calls: `shares`

All ratios are sums divided by sums, over every replica and version: each call counts once. (The
mean of the ratios of all models that are loaded, most of which nobody calls, is another number:
triton-inference-server issue 8979.)

Cold starts: how long it takes from the wish for a replica until it can be called.

Only those count that somebody wished for while we looked on: a replica that was there when the
control plane started, or that was lost and came back, tells nothing of that.

Presence: which replicas a pool has, which of them can be called, and how many are to come.

| a replica                                         | is       |
|---------------------------------------------------|----------|
| answers, and holds what it should                 | ready    |
| answers, and lacks something yet that it came for | starting |
| was not seen yet, or lost not long ago            | starting |
| was lost long ago, and others are ready           | nothing  |
| was lost long ago, as all others, unless the pool | starting |
| may have none                                     |          |
| is about to leave                                 | nothing  |
| was wished for, and has not joined yet            | starting |

A replica that is lost is mostly started anew by whoever runs it, so a hint must not forget it: the
next one would be followed by stopping another. A control plane that has lost sight of a whole pool
must not advise to stop it. One that only loads something is ready all the same.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.capacity.scaling.groups import Offer, Shares, part_of, shares
from serve.capacity.scaling.signals import Bounds, ModelSignal, PoolSignal
from serve.control.batching.observer import BatchingObserver, Slot
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.scaling.arrivals import ModelArrivals
from serve.control.scaling.capacities import Capacities
from serve.control.scaling.models import Called, called, waiting
from serve.control.scaling.setups import Setups, Where
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.triton.model_counters import NOTHING, Counters, total

# --- presence -------------------------------------------------------------------------------------


_PATIENCE, _STARTS = 120.0, 3.0  # seconds, and cold starts, for which a lost replica is expected


@dataclass(frozen=True, slots=True)
class Present:
    """One pool: the names of the replicas that can be called, and how many are to come."""

    ready: tuple[str, ...] = ()
    starting: int = 0


NOBODY = Present()


def ready_of(fleet: Fleet) -> tuple[str, ...]:
    """All replicas that can be called, of all pools."""
    return tuple(
        name for name in fleet.observations if fleet.is_present(name) and name not in fleet.joining
    )


def present(
    fleet: Fleet,
    pools: Iterable[str],
    ready: Collection[str],
    *,
    now: float,
    began: float,
    wished: Mapping[str, int],
    cold_starts: Mapping[str, float],
    sleepers: Collection[str] = (),
) -> dict[str, Present]:
    """Every pool. `began`: since when anybody looks; `wished`: replicas that are yet to join.

    `sleepers`: pools that may have none.
    """
    are_ready, coming = set(ready), dict(wished)
    found: dict[str, list[str]] = {pool: [] for pool in pools}
    gone: dict[str, int] = {}
    for name, one in fleet.observations.items():
        pool = one.replica.pool
        if fleet.is_retired(name):
            continue
        if name in are_ready:
            found.setdefault(pool, []).append(name)
            continue
        patience = max(_PATIENCE, _STARTS * cold_starts.get(pool, 0.0))
        if one.is_up or now - max(one.since, began) < patience:
            coming[pool] = coming.get(pool, 0) + 1
        else:
            gone[pool] = gone.get(pool, 0) + 1
    for pool, count in gone.items():
        if not found.get(pool) and pool not in sleepers:
            coming[pool] = coming.get(pool, 0) + count
    return {
        pool: Present(tuple(sorted(names)), coming.get(pool, 0)) for pool, names in found.items()
    }


# --- cold starts ----------------------------------------------------------------------------------


USUAL = 60.0  # seconds, until one was seen
_KEPT = 20  # starts of a pool
_QUANTILE = 0.9


class ColdStarts:
    """By pool. `clock`: that of the fleet's times."""

    def __init__(self, fleet: Fleet, *, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._took: dict[str, deque[float]] = {}
        self._known: set[tuple[str, float]] = set()  # replicas that are ready, and when they joined

    def __repr__(self) -> str:
        return f"<ColdStarts { ({pool: len(took) for pool, took in self._took.items()}) }>"

    def look(self, ready: Collection[str]) -> None:
        """These replicas can be called now; those of them that are new have started."""
        now = self._clock()
        seen = self._fleet.observations
        found: set[tuple[str, float]] = set()
        for name in ready:
            one = seen[name]
            if one.joined_at is None or one.wished_at is None:
                continue
            found.add((name, one.joined_at))
            if (name, one.joined_at) not in self._known:
                took = self._took.setdefault(one.replica.pool, deque(maxlen=_KEPT))
                took.append(max(0.0, now - one.wished_at))
        joined = {(name, one.joined_at) for name, one in seen.items() if one.joined_at is not None}
        self._known = (self._known | found) & joined

    def of(self, pool: str) -> float:
        """The 90th percentile of the last ones, in seconds."""
        took = sorted(self._took.get(pool, ()))
        return took[math.ceil(_QUANTILE * len(took)) - 1] if took else USUAL


# --- signals --------------------------------------------------------------------------------------


Gpus = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by replica, by UUID, what is known
_FEW = 1e-6  # calls per second of who only waits


@dataclass(frozen=True, slots=True)
class Allowed:
    """What people allow of a pool now. `cost`: of a replica per hour; `group`: empty for none."""

    bounds: Bounds
    schedule: str = ""
    cost: float = 1.0
    group: str = ""


class Signals:
    """Looks. `starting` gives the replicas by pool that are wished for and have not joined yet."""

    def __init__(
        self,
        fleet: Fleet,
        observer: BatchingObserver,
        arrivals: ModelArrivals,
        setups: Setups,
        *,
        decisions: Callable[[], Decisions],
        snapshot: Callable[[], Snapshot],
        starting: Callable[[], Mapping[str, int]],
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._observer = observer
        self._arrivals = arrivals
        self._setups = setups
        self._capacities = Capacities(observer, setups)
        self._cold_starts = ColdStarts(fleet, clock=clock)
        self._decisions = decisions
        self._snapshot = snapshot
        self._starting = starting
        self._clock = clock
        self._began = self._looked = math.nan  # the first and the last look
        self._done: dict[str, Mapping[Slot, Counters]] = {}  # in the last minute, by pool
        self._shares: dict[str, Shares] = {}  # by group
        self._bears: dict[str, set[str]] = {}  # models by pool, of those that are in a group
        self._called: dict[str, float] = {}  # when each pool was called last
        self._there: dict[str, Present] = {}
        self._too_slow: set[tuple[str, str]] = set()  # pool and model: no batch meets the objective

    def __repr__(self) -> str:
        return f"<Signals {self._arrivals} {self._capacities} {self._cold_starts}>"

    def ready(self, pool: str) -> tuple[str, ...]:
        """The replicas of a pool that could be called when it was looked at last."""
        return self._there.get(pool, NOBODY).ready

    def holders(self) -> Mapping[Where, Replica]:
        """Who can tell how what is called is run, by pool and name in Triton."""
        names = {slot[0] for done in self._done.values() for slot in done}
        for one in self._models({}):
            names |= {name for name, _ in one.slots}
        found: dict[Where, Replica] = {}
        for name in ready_of(self._fleet):
            seen = self._fleet.observations[name]
            for held in seen.held.keys() & names:
                found.setdefault((seen.replica.pool, held), seen.replica)
        return found

    def look(
        self, allowed: Mapping[str, Allowed], gpus: Gpus, woken: Mapping[str, float]
    ) -> dict[str, PoolSignal]:
        """Every pool of which something is allowed. `woken`: models that somebody waits for."""
        now = self._clock()
        if math.isnan(self._began):
            self._began = self._looked = now
        there = self._there = self._present(allowed, now)
        self._done = {
            pool: self._capacities.learn(pool, one.ready, now) for pool, one in there.items()
        }
        self._capacities.forget(self._fleet.observations.keys(), there)
        self._too_slow.clear()
        models: dict[str, list[ModelSignal]] = {pool: [] for pool in there}
        for one in self._models(woken):
            for pool, signal in self._seen(one, there, one.name in woken, now):
                models[pool].append(signal)
        self._bears.clear()
        for group, pools in _groups(allowed).items():
            self._share(group, pools, allowed, there, models)
        found = {
            pool: self._pool(pool, one, models[pool], gpus, now) for pool, one in there.items()
        }
        self._looked = now
        return found

    def _models(self, woken: Mapping[str, float]) -> list[Called]:
        now, arrivals = self._clock(), self._arrivals
        return list(called(self._snapshot(), self._decisions(), arrivals, woken=woken, now=now))

    def _present(self, allowed: Mapping[str, Allowed], now: float) -> dict[str, Present]:
        ready = ready_of(self._fleet)
        self._cold_starts.look(ready)
        found = present(
            self._fleet,
            allowed,
            ready,
            now=now,
            began=self._began,
            wished=self._starting(),
            cold_starts={pool: self._cold_starts.of(pool) for pool in allowed},
            sleepers={pool for pool, one in allowed.items() if one.bounds.to_zero},
        )
        return {pool: found.get(pool, NOBODY) for pool in allowed}

    def _seen(
        self, one: Called, there: Mapping[str, Present], is_woken: bool, now: float
    ) -> list[tuple[str, ModelSignal]]:
        """A model in each of its pools; all that came is told in each, until it is shared out."""
        pools = [pool for pool in one.pools if pool in there]
        holders = {
            pool: [name for name in there[pool].ready if self._holds(name, one)] for pool in pools
        }
        waits = waiting(one, holders, self._observer, self._setups)
        if is_woken and not any(holders.values()):
            waits = max(waits, 1.0)
        return [(pool, self._model(one, pool, holders[pool], waits, now)) for pool in pools]

    def _holds(self, replica: str, one: Called) -> bool:
        return any(self._fleet.can_be_called(replica, *slot) for slot in one.slots)

    def _model(
        self, one: Called, pool: str, holders: list[str], waits: float, now: float
    ) -> ModelSignal:
        done = self._done[pool]
        counted = total(done[slot] for slot in one.slots if slot in done)
        within = counted.whole / counted.calls / 1e9 if counted.calls else None
        took = one.came.seconds
        outside = max(0.0, took - within) if took is not None and within is not None else 0.0
        capacity = self._capacities.of(
            pool, one.slots, done, limit=one.limit, outside=outside, now=now
        )
        if self._capacities.is_too_slow(pool, one.slots, limit=one.limit, outside=outside):
            self._too_slow.add((pool, one.name))
        return ModelSignal(
            one.name,
            recent=one.came.recent,
            lately=one.came.lately,
            waiting=waits,
            capacity=capacity,
            holding=len(holders),
            limit=one.limit,
            missed=one.came.missed(one.limit),
            pressure=counted.queue / counted.compute if counted.compute else None,
            occupancy=self._occupancy(one, pool),
            age=max([self._age(name, now) for name in holders], default=0.0),
            allowed=one.allowed,
        )

    def _occupancy(self, one: Called, pool: str) -> float | None:
        """Rows that were executed ÷ those that the same executions could have held."""
        rows = room = 0
        for slot in one.slots:
            counted = self._done[pool].get(slot, NOTHING)
            setup = self._setups.of(pool, slot[0])
            if setup is not None and setup.largest and counted.executions:
                rows += counted.rows
                room += setup.largest * counted.executions
        return min(1.0, rows / room) if room else None

    def _age(self, replica: str, now: float) -> float:
        """Seconds since it has told what it has counted, or could have done so."""
        seen, heard = self._fleet.observations[replica], self._observer.heard(replica)
        return max(0.0, now - max(heard or -math.inf, seen.since, self._began))

    def _share(
        self,
        group: str,
        pools: list[str],
        allowed: Mapping[str, Allowed],
        there: Mapping[str, Present],
        models: dict[str, list[ModelSignal]],
    ) -> None:
        """Divide what a group is called for among its pools."""
        demand = {
            one.name: max(one.recent, one.lately, _FEW) for pool in pools for one in models[pool]
        }
        offers = [self._offer(pool, allowed[pool], there[pool], models[pool]) for pool in pools]
        parts = self._shares[group] = shares(demand, offers, self._shares.get(group, {}))
        for pool in pools:
            mine = parts.get(pool, {})
            self._bears[pool] = {name for name, part in mine.items() if part}
            models[pool] = [part_of(one, mine.get(one.name, 0.0)) for one in models[pool]]

    def _offer(
        self, pool: str, allowed: Allowed, here: Present, models: list[ModelSignal]
    ) -> Offer:
        bounds = allowed.bounds
        least = 0 if bounds.to_zero else bounds.least
        capacities = {
            one.name: 0.0 if (pool, one.name) in self._too_slow else one.capacity for one in models
        }
        return Offer(pool, allowed.cost, least, bounds.highest, capacities, len(here.ready))

    def _pool(
        self, pool: str, here: Present, models: list[ModelSignal], gpus: Gpus, now: float
    ) -> PoolSignal:
        if any(self._is_called(one, pool) for one in models):
            self._called[pool] = now
        began = self._began if here.ready or here.starting else -math.inf
        read = self._arrivals.at
        return PoolSignal(
            pool,
            now,
            ready=len(here.ready),
            starting=here.starting,
            models=tuple(models),
            utilization=_utilization(here, gpus),
            cold_start=self._cold_starts.of(pool),
            idle=now - self._called.get(pool, began),
            age=now - (self._began if read is None else read),
            faults=tuple(self._faults(here)),
        )

    def _is_called(self, one: ModelSignal, pool: str) -> bool:
        """Whether calls for a model come, wait, or are under way for so long that none comes."""
        if one.recent or one.waiting:
            return True
        bears = self._bears.get(pool)
        return bool(self._arrivals.in_flight(one.name)) and (bears is None or one.name in bears)

    def _faults(self, here: Present) -> list[str]:
        """What cannot be right in what was read since the last look."""
        found = [self._arrivals.fault] if self._arrivals.fault else []
        for name in here.ready:
            if any(one.fell for one in self._observer.rounds(name, self._looked)):
                found.append(f"the counters of {name} decreased, because it reloaded a model")
        return found


def _groups(allowed: Mapping[str, Allowed]) -> dict[str, list[str]]:
    """The pools of each group that has more than one."""
    groups: dict[str, list[str]] = {}
    for pool, one in allowed.items():
        if one.group:
            groups.setdefault(one.group, []).append(pool)
    return {group: pools for group, pools in groups.items() if len(pools) > 1}


def _utilization(here: Present, gpus: Gpus) -> float | None:
    """The mean of those GPUs that tell, each of which counts once."""
    told: dict[str, float] = {}
    for name in here.ready:
        for uuid, one in gpus.get(name, {}).items():
            if one.get("utilization") is not None:
                told[uuid] = float(one["utilization"])
    return sum(told.values()) / len(told) if told else None
