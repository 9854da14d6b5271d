"""Membership: which replicas there are, while the control plane runs.

Whoever starts and stops Tritons tells the whole list as it shall be, and how many it is starting:

    not in the fleet ──▶ joins: looked at, loaded, called once it holds what it should
    no longer told   ──▶ retires: no calls begin there ──▶ the last one has ended ──▶ is gone
    told again       ──▶ stays after all

The list is told again until nobody is left on the way out; then those Tritons may be stopped. A
control plane that starts anew meanwhile does not know them, but its workers may: so whoever waits
for some tells their names.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType

from serve.control.fleet import Fleet
from serve.control.observations import Observation
from serve.control.reconciliation.keepers import Keepers
from serve.control.reconciliation.reconciler import ReplicaKeeper
from serve.control.snapshots import Publisher
from serve.core.replicas import Replica

_log = logging.getLogger("servegate.membership")
_LOOK = 0.1  # seconds between two looks at what is in flight
_RETURN = 5.0  # seconds for somebody who measures on a replica to stop doing so

Busy = Callable[[], Awaitable[Mapping[str, float] | None]]  # calls in flight by replica, if told
_NONE: Mapping[str, int] = MappingProxyType({})


class Membership:
    """Joins and removes replicas; their keepers run while `run` runs. `clock`: monotonic seconds.

    `keep` makes the keeper of a replica. `busy` tells the calls in flight by replica, which has no
    entry for one without; None when nobody tells.
    """

    def __init__(
        self,
        fleet: Fleet,
        keepers: Keepers,
        publisher: Publisher,
        *,
        keep: Callable[[Replica], ReplicaKeeper],
        busy: Busy,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._keepers = keepers
        self._publisher = publisher
        self._keep = keep
        self._busy = busy
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()  # change at a time
        self._wishes: dict[str, tuple[float, ...]] = {}  # when those that start were wished for
        self._heard: list[Callable[[Replica], Awaitable[None]]] = []
        for replica in fleet.staying.values():
            keepers.add(keep(replica))

    def __repr__(self) -> str:
        return f"<Membership {sorted(self._fleet.staying)} wished={self.wished}>"

    async def run(self) -> None:
        """Keep all replicas as they should be, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for keeper in self._keepers:
                self._start(keeper)
            await self._publisher.refresh()  # where there is no replica nobody else would
            await asyncio.Event().wait()

    @property
    def wished(self) -> Mapping[str, int]:
        """How many are being started and have not joined yet, by pool."""
        return {pool: len(wishes) for pool, wishes in self._wishes.items() if wishes}

    def after_leaving(self, tell: Callable[[Replica], Awaitable[None]]) -> None:
        """Call this with each replica that has left."""
        self._heard.append(tell)

    async def begin(self, replicas: Collection[Replica]) -> None:
        """These are all that there were when the control plane started, as is known only now."""
        async with self._one:
            await self._become({one.name: one for one in replicas}, _NONE)
            self._fleet.complete()
            await self._publisher.refresh()

    async def become(
        self,
        replicas: Collection[Replica],
        starting: Mapping[str, int] = _NONE,
        *,
        begun: Collection[str] = (),
        leaving: Collection[str] = (),
        within: float = 5.0,
    ) -> Mapping[str, float | None]:
        """These are the replicas; so many more start, by pool. `leaving` are names of earlier ones.

        `begun` are names of those that begin to start only now, of whom nobody has told before.

        Gives those that are still on their way out after so many seconds, and how many calls are in
        flight there: None where that is not known.
        """
        async with self._one:
            wanted = {one.name: one for one in replicas}
            await self._become(wanted, starting, begun)
        left = await self._let_go(set(leaving) - wanted.keys(), within)  # others may join meanwhile
        async with self._one:
            gone = {name for name, count in left.items() if count == 0 and not self._stays(name)}
            for name in sorted(gone & self._fleet.observations.keys()):
                await self._remove(name)
        return {name: count for name, count in left.items() if name not in gone}

    def _stays(self, name: str) -> bool:
        """Whether somebody has told it again."""
        return name in self._fleet.observations and not self._fleet.is_retired(name)

    async def _become(
        self,
        wanted: Mapping[str, Replica],
        starting: Mapping[str, int],
        begun: Collection[str] = (),
    ) -> None:
        before = self._fleet.observations
        moved = [name for name, one in wanted.items() if _is_elsewhere(one, before.get(name))]
        for name in [*moved, *(before.keys() - wanted.keys())]:
            self._fleet.retire(name)
        for name in moved:
            await self._remove(name)  # nobody answers there any more
        for name, replica in wanted.items():
            self._fleet.take_back(name)
            if name not in self._fleet.observations:
                self._join(replica, self._clock() if name in begun else None)
        self._wish(starting)

    def _join(self, replica: Replica, wished_at: float | None) -> None:
        wishes = self._wishes.get(replica.pool, ())
        self._fleet.join(replica, wishes[0] if wishes else wished_at)
        self._wishes[replica.pool] = wishes[1:]
        keeper = self._keep(replica)
        self._keepers.add(keeper)
        self._start(keeper)
        _log.info("replica %s joined at %s", replica.name, replica)

    def _start(self, keeper: ReplicaKeeper) -> None:
        if self._tasks is not None:
            self._running[keeper.name] = self._tasks.create_task(keeper.run())

    def _wish(self, starting: Mapping[str, int]) -> None:
        """Remember since when so many are wished for."""
        now = self._clock()
        self._wishes = {
            pool: (*known[:count], *((now,) * (count - len(known))))
            for pool, count in starting.items()
            for known in (self._wishes.get(pool, ()),)
            if count > 0
        }

    async def _let_go(self, names: set[str], within: float) -> dict[str, float | None]:
        """Wait until nobody calls these or retired ones; gives what is known to be in flight."""
        end = self._clock() + within
        generation = await self._publisher.committed()
        retired = {name for name in self._fleet.observations if self._fleet.is_retired(name)}
        leaving = sorted(names | retired)
        if not leaving:
            return {}
        if not await self._publisher.in_force(generation, within):
            return dict.fromkeys(leaving)  # some worker may still begin calls there
        while True:
            told = await self._busy()
            counts = {name: self._count(name, told) for name in leaving}
            if not any(count != 0 for count in counts.values()) or self._clock() >= end:
                return counts
            await asyncio.sleep(_LOOK)

    async def _remove(self, name: str) -> None:
        """It has no calls any more: forget it."""
        keeper, running = self._keepers.get(name), self._running.pop(name, None)
        if keeper is not None:
            await self._returned(keeper)
            self._keepers.remove(name)
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        replica = self._fleet.observations[name].replica
        self._fleet.remove(name)
        await self._publisher.refresh()
        for tell in self._heard:
            await tell(replica)
        _log.info("replica %s left", name)

    async def _returned(self, keeper: ReplicaKeeper) -> None:
        """Nobody measures on it any more; whoever does hears that it leaves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETURN):
                await keeper.lending.returned()

    def _count(self, name: str, told: Mapping[str, float] | None) -> float | None:
        """The calls in flight there; none where nobody answers and nobody tells."""
        if told is not None:
            return told.get(name, 0.0)
        seen = self._fleet.observations.get(name)
        return 0.0 if seen is not None and seen.state == "lost" else None


def _is_elsewhere(wanted: Replica, known: Observation | None) -> bool:
    """Whether a replica of this name is known at another address, or in another pool."""
    return known is not None and known.replica != wanted
