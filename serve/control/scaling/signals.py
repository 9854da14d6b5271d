"""Signals: what is seen of every pool, put together from all that was read.

    gateway's metrics ──▶ Arrivals ────┐
    replicas ──▶ Observer ─▶ Capacities ├──▶ a ModelSignal per pool and model ──▶ a PoolSignal
    fleet ──▶ Presence, ColdStarts ────┘            ▲
                             what a group's pools bear of a model's calls: `shares`

All ratios are sums divided by sums, over every replica and version: each call counts once. (The
mean of the ratios of all models that are loaded, most of which nobody calls, is another number:
triton-inference-server issue 8979.)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.capacity.scaling.groups import Offer, Shares, part_of, shares
from serve.capacity.scaling.signals import Bounds, ModelSignal, PoolSignal
from serve.control.batching.observer import BatchingObserver, Slot
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.scaling.arrivals import ModelArrivals
from serve.control.scaling.capacities import Capacities
from serve.control.scaling.cold_starts import ColdStarts
from serve.control.scaling.models import Called, called, waiting
from serve.control.scaling.presence import NOBODY, Present, present, ready_of
from serve.control.scaling.setups import Setups, Where
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.triton.model_counters import NOTHING, Counters, total

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
