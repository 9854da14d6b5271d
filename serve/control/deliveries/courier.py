"""The courier: has the files of wanted versions delivered, whenever what is wanted has changed."""

import asyncio
import logging
from collections.abc import Callable

from serve.control.deliveries.delivery import Delivery, Slot
from serve.control.fleet import LOADING, Fleet
from serve.control.inventory import Inventory
from serve.core.errors import ServegateError

_log = logging.getLogger("servegate.courier")


class Courier:
    """Calls `delivery` until it is cancelled; `arrived` hears after each round that it was done.

    `pause` is the time between two rounds, in seconds, if nobody wakes it.
    """

    def __init__(
        self,
        inventory: Inventory,
        fleet: Fleet,
        delivery: Delivery,
        *,
        arrived: Callable[[], None],
        pause: float,
    ) -> None:
        self._inventory = inventory
        self._fleet = fleet
        self._delivery = delivery
        self._arrived = arrived
        self._pause = pause
        self._news = asyncio.Event()
        self._told = ""

    def __repr__(self) -> str:
        return f"<Courier of {self._delivery!r}>"

    def wake(self) -> None:
        """What is wanted may have changed."""
        self._news.set()

    async def run(self) -> None:
        """Deliver for ever."""
        while True:
            self._news.clear()
            await self.round()
            self._arrived()
            try:
                async with asyncio.timeout(self._pause):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def round(self) -> None:
        """Deliver once; what fails is tried again in the next round."""
        try:
            await self._delivery.deliver(self._inventory.wanted_versions, self._held())
        except (ServegateError, OSError) as error:
            if str(error) != self._told:
                _log.warning("versions cannot be delivered: %s", error)
            self._told = str(error)
        else:
            self._told = ""

    def _held(self) -> set[Slot]:
        """What some replica was last seen to hold, or loads now: its files may still be read."""
        held = {
            (name, version)
            for seen in self._fleet.observations.values()
            for name, versions in seen.held.items()
            for version in versions
        }
        return held | self._fleet.barred.because_of(LOADING)
