"""Watching: what one replica holds, asked again and again, and what it means when it is another."""

import logging
from types import MappingProxyType

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.observations import Held
from serve.control.reconciliation.flavours import Flavouring
from serve.control.reconciliation.loader import Loader
from serve.control.reconciliation.plan import held_of
from serve.control.reconciliation.server_settings import ServerSettings
from serve.core.errors import ServegateError, Unavailable
from serve.triton.control import IndexEntry, TritonControl

_log = logging.getLogger("servegate.reconciler")


class ReplicaWatch:
    """Looks at one replica; the fleet, and who acts there, hear what came of it."""

    def __init__(
        self,
        name: str,
        control: TritonControl,
        *,
        fleet: Fleet,
        inventory: Inventory,
        flavouring: Flavouring,
        loader: Loader,
        settings: ServerSettings,
    ) -> None:
        self._name = name
        self._control = control
        self._fleet = fleet
        self._inventory = inventory
        self._flavouring = flavouring
        self._loader = loader
        self._settings = settings
        self._cannot_list = False
        self._listed: tuple[tuple[IndexEntry, ...], Held] = ((), MappingProxyType({}))

    def __repr__(self) -> str:
        return f"<ReplicaWatch {self._name} holds={len(self._listed[1])}>"

    async def look(self) -> bool:
        """Ask once; whether there is news."""
        try:
            held = self._held(await self._control.index())
            news = self._saw(held)
            pool = self._fleet.observations[self._name].replica.pool
            self._loader.give_up_unwanted(self._inventory.for_pool(pool))
            if self._inventory.is_discovering and await self._inventory.learn(self._control, held):
                news = True
        except Unavailable as error:
            news = self._lost(error.why or str(error))
        except ServegateError as error:  # it answers, but cannot list: what it holds, it holds
            if not self._cannot_list:
                _log.warning("replica %s cannot list its models: %s", self._name, error)
            self._cannot_list = True
            return False
        else:
            self._cannot_list = False
        return news

    def _held(self, listed: tuple[IndexEntry, ...]) -> Held:
        """What is listed as ready; the same list, which is the same object, is read once."""
        if listed is not self._listed[0]:
            self._listed = listed, held_of(listed)
            self._loader.loading = frozenset(one.model for one in listed if one.state == "LOADING")
        return self._listed[1]

    def _saw(self, held: Held) -> bool:
        news = self._fleet.saw(self._name, held)
        self._flavouring.back(held)
        if news and not held:  # it has just started, or lost everything
            self._fleet.joining.add(self._name)
            self._settings.forget()
        return news

    def _lost(self, why: str) -> bool:
        news = self._fleet.lost(self._name, why)
        self._settings.forget()  # it may come back as another process
        self._flavouring.lost()
        self._loader.give_up_hung()
        self._loader.lost()
        if news:
            _log.warning("replica %s is lost: %s", self._name, why)
        return news
