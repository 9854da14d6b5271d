"""Steering: calls go elsewhere while a replica is busy with loading.

A load takes CPU, memory bandwidth and GPU time from the calls that run beside it. So a replica that
serves is left alone first: one of a pool at a time, and only while enough others go on serving. A
replica that serves nothing yet needs no leave, and gets no calls before it has everything.

| the replica                   | what happens                                            |
|-------------------------------|---------------------------------------------------------|
| serves nothing                | it loads at once, and gets calls only if nobody else can |
| serves, and enough others do  | it waits its turn, is steered around, loads             |
| serves, and too few others do | it loads under its calls, or not at all: `refuse`       |

A turn ends with the load, or after `TURN` seconds: a load may hang for ever, and others wait.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator

from serve.control.fleet import Fleet
from serve.control.snapshots import Publisher
from serve.core.errors import Unavailable
from serve.core.snapshot import Snapshot

_log = logging.getLogger("servegate.steering")
STEER_TIMEOUT = 5.0  # seconds for every worker to follow
TURN = 20.0  # seconds


class NoSpare(Unavailable):
    """Too few other replicas would go on serving. Nothing was done."""

    code = "no_spare"


class Steering:
    """Gives replicas leave, one of a pool at a time.

    `min_available` is the share of a pool, from 0 to 1, that has to go on serving. With `refuse` a
    replica that cannot be spared does not load; otherwise it loads while it serves.
    """

    def __init__(
        self, fleet: Fleet, publisher: Publisher, *, min_available: float, refuse: bool
    ) -> None:
        self._fleet = fleet
        self._publisher = publisher
        self._min_available = min_available
        self._refuse = refuse
        self._turns: dict[str, asyncio.Lock] = {}
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<Steering away={sorted(self._fleet.steered)}>"

    def enough(self, pool: str) -> int:
        """How many replicas of a pool have to serve something for it to be safe."""
        return max(1, math.ceil(self._min_available * len(self._fleet.in_pool(pool))))

    def lacking(self, name: str) -> str:
        """Why a replica that serves cannot be spared; empty if it can."""
        pool = self._fleet.observations[name].replica.pool
        serving = serving_of(self._publisher.snapshot, self._fleet)
        others = [
            one
            for one in self._fleet.in_pool(pool)
            if one != name and one in serving and self._fleet.is_free(one)
        ]
        needed = self.enough(pool)
        if len(others) >= needed:
            return ""
        return f"pool '{pool}' would have {len(others)} serving replicas, and needs {needed}"

    @contextlib.asynccontextmanager
    async def away(self, name: str) -> AsyncIterator[None]:
        """Inside, calls go elsewhere as far as they can; `NoSpare` where that is not allowed."""
        if name not in serving_of(self._publisher.snapshot, self._fleet):
            async with self._around(name):
                yield
            return
        async with self._turn(self._fleet.observations[name].replica.pool, most=TURN):
            lacking = self.lacking(name)
            if lacking:
                self._cannot_spare(name, lacking)
                yield
                return
            self._warned.discard(name)
            async with self._around(name):
                await self._followed()
                yield

    @contextlib.asynccontextmanager
    async def lent(self, name: str) -> AsyncIterator[None]:
        """As `away`, for long: meanwhile others take their turns, as long as enough go on serving.

        `NoSpare` where this one is needed.
        """
        serves = name in serving_of(self._publisher.snapshot, self._fleet)
        async with contextlib.AsyncExitStack() as stack:
            async with self._turn(self._fleet.observations[name].replica.pool):
                lacking = self.lacking(name) if serves else ""
                if lacking:
                    raise NoSpare(
                        f"replica {name} cannot be taken out of rotation",
                        why=lacking,
                        try_this="choose another replica",
                    )
                await stack.enter_async_context(self._around(name))
                await self._followed()
            yield

    @contextlib.asynccontextmanager
    async def _turn(self, pool: str, *, most: float | None = None) -> AsyncIterator[None]:
        """Inside, no other replica of the pool has its turn; for `most` seconds at most."""
        turn = self._turns.setdefault(pool, asyncio.Lock())
        await turn.acquire()
        ending = contextlib.ExitStack()
        ending.callback(turn.release)
        timer = most and asyncio.get_running_loop().call_later(most, ending.close)
        try:
            yield
        finally:
            if timer:
                timer.cancel()
            ending.close()  # once is enough: then it holds nothing any more

    async def _followed(self) -> None:
        """Every worker knows where calls go now; `Unavailable` when one does not."""
        generation = await self._publisher.refresh()
        if not await self._publisher.in_force(generation, STEER_TIMEOUT):
            raise Unavailable(
                "a worker has not applied the latest snapshot", why="it may still send calls"
            )

    @contextlib.asynccontextmanager
    async def _around(self, name: str) -> AsyncIterator[None]:
        try:
            with self._fleet.steering(name):
                yield
        finally:
            await self._publisher.refresh()

    def _cannot_spare(self, name: str, lacking: str) -> None:
        if self._refuse:
            raise NoSpare(
                f"replica {name} cannot be taken out of rotation to load models",
                why=lacking,
                try_this="add a replica, or set --without-spare warn",
            )
        if name not in self._warned:
            self._warned.add(name)
            _log.warning("replica %s loads models while it serves calls: %s", name, lacking)


def serving_of(snapshot: Snapshot, fleet: Fleet) -> frozenset[str]:
    """The replicas that answer, and to which calls may go."""
    targets = (one for view in snapshot.models.values() for one in view.targets.values())
    sets = {id(target.replicas): target.replicas for target in targets}  # most are the same
    return frozenset[str]().union(*sets.values()) & fleet.holding.up
