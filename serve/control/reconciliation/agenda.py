"""The agenda: what is to be done on one replica, as things stand at this moment."""

from collections.abc import Callable, Collection, Iterator, Mapping

from serve.control.decisions import Decisions
from serve.control.deliveries.delivery import Delivery
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.reconciliation.flavours import Flavouring
from serve.control.reconciliation.loader import Loader
from serve.control.reconciliation.plan import Load, Step, delivered, plan, takes_time
from serve.control.registry import Loadable
from serve.control.versions import PublishedVersion


class Agenda:
    """Reads what is wanted, delivered and held, each time anew."""

    def __init__(
        self,
        name: str,
        *,
        fleet: Fleet,
        inventory: Inventory,
        delivery: Delivery,
        loader: Loader,
        flavouring: Flavouring,
        decisions: Callable[[], Decisions],
    ) -> None:
        self._name = name
        self._fleet = fleet
        self._inventory = inventory
        self._delivery = delivery
        self._loader = loader
        self._flavouring = flavouring
        self._decisions = decisions

    def __repr__(self) -> str:
        return f"<Agenda {self._name} steps={len(self.steps())}>"

    def steps(self, again: Collection[str] = ()) -> list[Step]:
        """All steps in their order; names in `again` are loaded anew in any case."""
        seen = self._fleet.observations[self._name]
        wanted = self._inventory.for_pool(seen.replica.pool)
        models = self._delivered(self._flavouring.chosen(wanted))
        self._loader.adopt(models, seen.held)
        removed = self._inventory.removed | self._moved(seen.replica.pool)
        wrong = self._fleet.wrong(self._name)
        return plan(models, seen.held, self._loader.applied, removed, again, wrong)

    def has_loads(self, again: Collection[str] = ()) -> bool:
        """Whether there is something to be loaded now."""
        return any(takes_time(step) and self._loader.is_due(step) for step in self.steps(again))

    def has_nothing_for(self, name: str) -> bool:
        """Whether what is under this name is here as it should be."""
        lacking = any(isinstance(step, Load) and step.name == name for step in self.steps())
        held = self._fleet.observations[self._name].held.get(name)
        return not lacking and (not held or name in self._loader.applied)

    @property
    def awaited(self) -> frozenset[str]:
        """The names in Triton of which files are on their way here, as far as anybody can tell."""
        return frozenset(name for name, why in self._undelivered() if not why)

    @property
    def lacks_files(self) -> bool:
        """Whether a version that should be here is not held, and was not delivered yet."""
        return next(self._undelivered(), None) is not None

    def undelivered(self, name: str) -> str:
        """Why something under this name is not here; empty if it is, or is on its way."""
        return next((why for one, why in self._undelivered() if why and one == name), "")

    def _undelivered(self) -> Iterator[tuple[str, str]]:
        """The name and the problem, if any, of each published version that is lacking."""
        seen = self._fleet.observations[self._name]
        for one in self._inventory.for_pool(seen.replica.pool).values():
            for number in one.wanted if one.published else ():
                version = self._version(one, number)
                is_held = number in seen.held.get(one.name, ())
                if not is_held and not self._delivery.has(self._name, version):
                    yield one.name, self._delivery.problem(self._name, version)

    def _moved(self, pool: str) -> frozenset[str]:
        """What belongs to another pool, and gets no calls here any more."""
        held = self._fleet.observations[self._name].held
        return frozenset(
            name
            for name in self._inventory.elsewhere(pool)
            if name in held and not self._loader.is_called(name)
        )

    def _delivered(self, models: Mapping[str, Loadable]) -> Mapping[str, Loadable]:
        """What of it can be loaded here and now."""
        held = self._fleet.observations[self._name].held
        there = {
            one.name: [
                number
                for number in one.wanted
                if number in held.get(one.name, ())
                or self._delivery.has(self._name, self._version(one, number))
            ]
            for one in models.values()
            if one.published
        }
        return delivered(models, there)

    def _version(self, one: Loadable, number: int) -> PublishedVersion:
        return self._decisions().versions[one.model][number]
