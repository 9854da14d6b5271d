"""Lending: a replica is somebody else's for a while, who loads what they want to measure there.

    calls go elsewhere → its keeper rests → somebody loads, measures, loads again …
                                          → what should be there is loaded → calls come back

Others of its pool may be loaded meanwhile, if enough are left that serve without it. A control
plane that ends in between leaves the replica as it is: whoever comes next has to `reclaim` it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from serve.control.fleet import Fleet
from serve.control.reconciliation.busy_replicas import Steering


class Doubts(Protocol):
    """What `Loader` knows of how something is configured on its replica."""

    def doubt(self, name: str) -> None:
        """Nobody knows any more: it is to be loaded again."""
        ...

    def is_doubted(self, name: str) -> bool:
        """Whether it was not loaded again yet."""
        ...


class Lending:
    """Lends one replica. `turn` is held by its keeper while it takes steps.

    `put_back` loads a name in Triton as it should be, as far as that is possible.
    """

    def __init__(
        self,
        name: str,
        *,
        fleet: Fleet,
        steering: Steering,
        doubts: Doubts,
        put_back: Callable[[str], Awaitable[None]],
    ) -> None:
        self.turn = asyncio.Lock()
        self._name = name
        self._fleet = fleet
        self._steering = steering
        self._doubts = doubts
        self._put_back = put_back
        self._lent = 0
        self._back = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Lending {self._name} {'busy' if self.turn.locked() else 'free'}>"

    @contextlib.asynccontextmanager
    async def lent(self, model: str) -> AsyncIterator[None]:
        """Inside, this name in Triton may be loaded as one likes; `NoSpare` where none can be.

        It is loaded again before calls come back. If that fails it is tried later, as any load.
        """
        self._lent += 1
        try:
            async with self._steering.lent(self._name), self.turn:
                self._doubts.doubt(model)
                try:
                    yield
                finally:
                    await self._put_back(model)
        finally:
            self._lent -= 1
            self._back.set()

    async def returned(self) -> None:
        """Return when nobody has it, or waits for it."""
        while self._lent:
            self._back.clear()
            await self._back.wait()

    def is_back(self, model: str) -> bool:
        """Whether it was loaded again as it should be."""
        return not self._doubts.is_doubted(model)

    def reclaim(self, model: str) -> None:
        """An earlier control plane has lent it and not taken it back: no calls until it is."""
        self._fleet.joining.add(self._name)
        self._doubts.doubt(model)
