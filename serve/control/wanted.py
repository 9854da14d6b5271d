"""Wanted: what replicas should hold, worked out once for all of them.

Thousands of replicas ask for it again and again, and little changes from one time to the next. So
what comes out as it was before is the same object as before: who acts for a replica sees at a
glance whether anything has changed for it.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from serve.control.decisions import Decisions
from serve.control.registry import Loadable, Model
from serve.control.storage.store import Key

T = TypeVar("T")


class WantedVersions:
    """By what is decided and read at one time. `before` is what was wanted until then.

    `ours` are names in Triton that are or were ours.
    """

    def __init__(
        self,
        loadables: Mapping[str, Loadable],
        decisions: Decisions,
        ours: Collection[str],
        before: "WantedVersions | None" = None,
    ) -> None:
        off = (name for name in ours if name not in loadables or is_off(loadables[name]))
        settings: Mapping[Key, Mapping[str, Any]] = decisions.server_settings()
        self._decisions = decisions
        self._models: Mapping[str, Model] | None = None
        self._pools: dict[str, Mapping[str, Loadable]] = {}
        self._elsewhere: dict[str, frozenset[str]] = {}
        self._known: dict[str, Mapping[str, Loadable]] = {}  # by pool, as it was before
        self._known_elsewhere: dict[str, frozenset[str]] = {}
        self.loadables: Mapping[str, Loadable] = loadables
        self.removed: frozenset[str] = frozenset(off)
        self.server_settings = settings
        if before is not None:
            self._known = {**before._known, **before._pools}
            self._known_elsewhere = {**before._known_elsewhere, **before._elsewhere}
            self.loadables = _kept(loadables, before.loadables)
            self.removed = _kept(self.removed, before.removed)
            self.server_settings = _kept(settings, before.server_settings)

    def __repr__(self) -> str:
        return f"<WantedVersions {len(self.loadables)} removed={sorted(self.removed)}>"

    @property
    def models(self) -> Mapping[str, Model]:
        """All models by name: what can be loaded, and names of which a version is on its way."""
        if self._models is None:
            self._models = models_of(self.loadables, self._decisions.known_models)
        return self._models

    def for_pool(self, pool: str) -> Mapping[str, Loadable]:
        """What the replicas of a pool should hold, by name in Triton."""
        found = self._pools.get(pool)
        if found is None:
            pools, known = self._decisions.pools, self.loadables.items()
            its = {name: one for name, one in known if pool in pools(one.model) and not is_off(one)}
            found = self._pools[pool] = _kept(MappingProxyType(its), self._known.get(pool))
        return found

    def elsewhere(self, pool: str) -> frozenset[str]:
        """Names in Triton that belong on the replicas of other pools alone, or on none."""
        found = self._elsewhere.get(pool)
        if found is None:
            others = frozenset(self.loadables.keys() - self.for_pool(pool).keys())
            found = self._elsewhere[pool] = _kept(others, self._known_elsewhere.get(pool))
        return found


def models_of(loadables: Mapping[str, Loadable], also: Collection[str] = ()) -> Mapping[str, Model]:
    """The models that these are for, by name; `also` are names of which nothing can be loaded."""
    found: dict[str, list[Loadable]] = {name: [] for name in also}
    for one in loadables.values():
        found.setdefault(one.model, []).append(one)
    return MappingProxyType(
        {
            name: Model(name, tuple(sorted(found[name], key=lambda one: (one.published, one.name))))
            for name in sorted(found)
        }
    )


def is_off(one: Loadable) -> bool:
    """Whether nothing of it is to be held, on purpose."""
    return one.unloaded or (one.published and not one.wanted)


def _kept(now: T, before: T | None) -> T:
    """The object from before, if it says the same."""
    return before if before is not None and before == now else now
