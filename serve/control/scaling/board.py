"""The board: the newest hint of every pool, and whoever waits for the next.

the loop ──put──▶ board ──▶ all, of        the admin API, KEDA, Prometheus, pages
                        ──▶ after          those who are told of each change at once
"""

import asyncio
from collections.abc import Iterable

from serve.capacity.scaling.signals import HOLDS
from serve.control.scaling.told import PoolNumbers
from serve.core.errors import NotFound, Unavailable


class HintBoard:
    """`number` rises with each round of hints."""

    def __init__(self) -> None:
        self._told: dict[str, PoolNumbers] = {}
        self._changed = asyncio.Event()
        self.number = 0

    def __repr__(self) -> str:
        return f"<HintBoard pools={len(self._told)} number={self.number}>"

    def put(self, round_: Iterable[PoolNumbers]) -> None:
        """A round: every pool that there is; others are gone."""
        self._told = {one.pool: one for one in sorted(round_, key=lambda one: one.pool)}
        self.number += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def all(self) -> tuple[PoolNumbers, ...]:
        """By the name of the pool; empty before the first round."""
        return tuple(self._told.values())

    def of(self, pool: str) -> PoolNumbers:
        """One pool's; `NotFound` where there is none."""
        told = self._told.get(pool)
        if told is None:
            known = ", ".join(self._told) or "none yet; the first appears within seconds"
            raise NotFound(f"there is no hint for pool '{pool}'", why=f"pools with hints: {known}")
        return told

    def followed(self, pool: str, now: float) -> PoolNumbers:
        """What may be followed at a time, in seconds of the epoch; `Unavailable` where nothing may.

        That is in a hold, too: whoever follows leaves everything as it is then. The number of a
        hold could mean less, since replicas that wait for a machine are nowhere to be seen.
        """
        if not self.number:
            raise Unavailable("there are no hints yet", why="the control plane has just started")
        told = self.of(pool)
        age = now - told.at
        if age > told.hint.lasts:
            why = f"the last one is {age:.0f} s old, and is valid for {told.hint.lasts:.0f} s"
            raise Unavailable(f"there is no current hint for pool '{pool}'", why=why)
        if told.hint.codes & HOLDS:
            why = "; ".join(one.text for one in told.hint.reasons if one.code in HOLDS)
            raise Unavailable(f"the hint for pool '{pool}' is on hold", why=why)
        return told

    async def after(self, number: int) -> int:
        """Return the newest number as soon as it is higher than this one."""
        while self.number <= number:
            await self._changed.wait()
        return self.number
