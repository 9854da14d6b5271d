"""The inventory: what is wanted, from a plain repository and what was published, or the replicas.

What replicas hold by themselves counts only where there is neither: then whatever is ready exists.

Wanted: what replicas should hold, worked out once for all of them.

Thousands of replicas ask for it again and again, and little changes from one time to the next. So
what comes out as it was before is the same object as before: who acts for a replica sees at a
glance whether anything has changed for it.

Published versions as loadables: those that share a configuration share a name in Triton.

What people have changed of it is applied.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from serve.control.applied_configurations import all_applied, applied_to
from serve.control.decisions import SERVING, Decisions
from serve.control.fleet import Fleet
from serve.control.observations import Held
from serve.control.placement import Name, Placed, Placement, Rules
from serve.control.registry import Loadable, Model, Registry, discovered
from serve.control.storage.store import Key, StoredEntry
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid, TritonFailed, Unavailable
from serve.triton import config as triton_config
from serve.triton.config import Configuration
from serve.triton.control import TritonControl

# --- published versions as loadables --------------------------------------------------------------


def loadables_of(decisions: Decisions, wanted: Collection[Name]) -> Mapping[str, Loadable]:
    """All that was ever published and is not retired, by its name in Triton."""
    groups: dict[str, list[PublishedVersion]] = {}
    for versions in decisions.versions.values():
        for version in versions.values():
            if version.is_published:
                groups.setdefault(version.physical, []).append(version)
    return MappingProxyType(
        {
            name: applied_to(_loadable(name, group, wanted), decisions, group[-1].group)
            for name, group in groups.items()
        }
    )


def names_in_triton(decisions: Decisions) -> frozenset[str]:
    """Every name under which a version was ever checked: what is loaded under it is ours."""
    return frozenset(
        version.physical
        for versions in decisions.versions.values()
        for version in versions.values()
        if version.physical
    )


def _loadable(name: str, group: list[PublishedVersion], wanted: Collection[Name]) -> Loadable:
    group.sort(key=lambda version: version.number)
    newest = group[-1]
    return Loadable(
        name=name,
        versions=tuple(version.number for version in group),
        wanted=tuple(v.number for v in group if (v.model, v.number) in wanted),
        configuration=newest.configuration,
        flavours=newest.forms,
        fingerprint=" ".join(version.content for version in group),
        labels=newest.output_labels,
        preprocessing=newest.preprocessing,
        output_kinds=newest.output_kinds,
        card=newest.card,
        of=newest.model,
        published=True,
    )


# --- wanted ---------------------------------------------------------------------------------------


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


# --- the inventory --------------------------------------------------------------------------------


_log = logging.getLogger("servegate.inventory")
_TWICE = (
    "the model repository also has a folder of this name, and Triton loads neither of the two; "
    "rename the folder"
)
_NOTHING = Placed(frozenset(), MappingProxyType({}))
_NO_FOLDERS: Mapping[str, Loadable] = MappingProxyType({})


class Inventory:
    """All that Triton can load, and the models that it is for.

    Without a repository and before anything is published it is discovering: what is ready is what
    exists. `placement` chooses among published versions.
    """

    def __init__(
        self,
        repository: Path | None,
        fleet: Fleet,
        *,
        decisions: Callable[[], Decisions],
        placement: Placement | None = None,
        publishes: bool = False,
    ) -> None:
        self._registry = Registry(repository) if repository is not None else None
        self._fleet = fleet
        self._decisions = decisions
        self._placement = placement or Placement(Rules(), clock=lambda: 0.0)
        self._publishes = publishes
        self._configs: dict[str, Configuration] = {}
        self._removed: set[str] = set()
        self._placed = _NOTHING
        self._published: Mapping[str, Loadable] = MappingProxyType({})
        self._seen: Decisions | None = None  # the decisions that `_published` was made of
        self._wanted: WantedVersions | None = None
        self._made_of: tuple[object, ...] = ()  # what `_wanted` was made of

    def __repr__(self) -> str:
        return f"<Inventory {self._registry or 'discovering'} removed={sorted(self._removed)}>"

    @property
    def is_discovering(self) -> bool:
        """Whether the replicas, not we, say what exists."""
        return self._registry is None and not self._publishes

    @property
    def loadables(self) -> Mapping[str, Loadable]:
        """All of them by their name in Triton, those with problems included."""
        if self.is_discovering:
            return self._discovered()
        return self._present().loadables

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """How each of them is run, by name in Triton, as far as that is known."""
        known = self.loadables.items()
        return {name: one.configuration for name, one in known if one.configuration is not None}

    @property
    def models(self) -> Mapping[str, Model]:
        """All models by name: what can be loaded, and names of which a version is on its way."""
        return models_of(self._discovered()) if self.is_discovering else self._present().models

    @property
    def server_settings(self) -> Mapping[Key, Mapping[str, Any]]:
        """Triton's own settings that were decided, by kind and model."""
        decided = self._decisions().server_settings
        return decided() if self.is_discovering else self._present().server_settings

    @property
    def removed(self) -> frozenset[str]:
        """Names in Triton that are no longer to be served: gone, unloaded or retired."""
        return frozenset() if self.is_discovering else self._present().removed

    def elsewhere(self, pool: str) -> frozenset[str]:
        """Names in Triton that belong on the replicas of other pools alone."""
        return frozenset() if self.is_discovering else self._present().elsewhere(pool)

    def for_pool(self, pool: str) -> Mapping[str, Loadable]:
        """What the replicas of a pool should hold, by name in Triton."""
        if not self.is_discovering:
            return self._present().for_pool(pool)
        return WantedVersions(self._discovered(), self._decisions(), ()).for_pool(pool)

    def plain_versions(self, model: str) -> tuple[int, ...]:
        """The versions in the folder that people keep for a model; none where there is none."""
        one = self._registry.models.get(model) if self._registry else None
        return one.versions if one else ()

    def plain_configuration(self, name: str) -> Configuration | None:
        """What config.pbtxt of a plain folder says; None where there is none."""
        one = self._registry.models.get(name) if self._registry else None
        return one.configuration if one else None

    def has_plain(self, model: str) -> bool:
        """Whether people keep a folder of this name."""
        return self._registry is not None and model in self._registry.models

    @property
    def wanted_versions(self) -> tuple[PublishedVersion, ...]:
        """The published versions that replicas should hold."""
        self._as_published()
        records = self._decisions().versions
        return tuple(records[model][number] for model, number in sorted(self._placed.wanted))

    def no_room(self, model: str, version: int) -> str:
        """Why a version that is needed has no place; empty when it has one."""
        return self._placed.problems.get((model, version), "")

    def displaced(self, kind: str, key: str, body: Mapping[str, Any] | None) -> Mapping[Name, str]:
        """What would have a place no more, and why, if this were decided of a model or a pool."""
        before = self._decisions()
        moved = Decisions({**before.entries, (kind, key): StoredEntry(body, 0)})
        plain = self._registry.models if self._registry else {}
        numbers = {name: one.wanted for name, one in plain.items()}
        problems = self._placement.place(moved, numbers).problems
        known = self._placement.place(before, numbers).problems
        return {name: why for name, why in problems.items() if name not in known}

    async def scan(self, *, settled: bool = False) -> bool:
        """Look at the repository and the clock again; whether anything changed.

        See `Registry.scan` for `settled`.
        """
        placed = self._placed
        self._seen = None
        self._as_published()
        changed = placed != self._placed
        if self._registry is None:
            return changed
        before = set(self._registry.models)
        try:
            changed |= await asyncio.to_thread(self._registry.scan, settled=settled)
        except Invalid as error:
            _log.warning("%s; the models that were read last stay active", error)
            return changed
        self._removed |= before
        self._removed -= set(self._registry.models)
        self._made_of = ()  # a look that came in between has missed what was removed
        return changed

    def _present(self) -> WantedVersions:
        """What is wanted, worked out anew when decisions, folders or the time have changed."""
        published, decisions = self._as_published(), self._decisions()
        plain = self._registry.models if self._registry else _NO_FOLDERS
        made_of = (published, decisions, plain)
        if self._wanted is None or [*map(id, made_of)] != [*map(id, self._made_of)]:
            twice = {
                name: replace(one, trouble=_TWICE)
                for name, one in published.items()
                if name in plain
            }
            loadables = MappingProxyType({**self._as_decided(plain), **published, **twice})
            ours = names_in_triton(decisions) | self._removed | loadables.keys()
            self._wanted = WantedVersions(loadables, decisions, ours, self._wanted)
            self._made_of = made_of
        return self._wanted

    def _as_published(self) -> Mapping[str, Loadable]:
        """What was published, worked out anew when decisions or the time have changed."""
        decisions = self._decisions()
        if decisions is not self._seen:
            plain = self._registry.models if self._registry else {}
            numbers = {name: one.wanted for name, one in plain.items()}
            self._placed = self._placement.place(decisions, numbers)
            self._published = MappingProxyType(
                {
                    name: replace(one, unloaded=True) if decisions.is_unloaded(one.model) else one
                    for name, one in loadables_of(decisions, self._placed.wanted).items()
                }
            )
            self._seen = decisions
        return self._published

    def _as_decided(self, plain: Mapping[str, Loadable]) -> Mapping[str, Loadable]:
        """What is on disk, with what management calls and changes of configurations say."""
        decisions = self._decisions()
        changed = {}
        for kind, name in decisions.entries:
            one = plain.get(name) if kind == SERVING else None
            if one is not None:
                changed[name] = _decided(one, decisions)
        changed |= all_applied({**plain, **changed}, decisions)
        return MappingProxyType({**plain, **changed}) if changed else plain

    def _discovered(self) -> Mapping[str, Loadable]:
        return discovered(self._fleet.holding.everything, self._configs)

    async def learn(self, control: TritonControl, held: Held) -> bool:
        """Ask a replica for configurations that are not known yet; whether any was learned."""
        learned = False
        for name in held:
            if name not in self._configs:
                try:
                    self._configs[name] = triton_config.of_message(await control.config(name))
                    learned = True
                except (TritonFailed, Unavailable) as error:
                    _log.warning("the configuration of %s cannot be read: %s", name, error)
        return learned


def _decided(one: Loadable, decisions: Decisions) -> Loadable:
    if decisions.is_unloaded(one.name):
        return replace(one, wanted=(), unloaded=True)
    override = decisions.override(one.name)
    if override is None:
        return one
    try:
        configuration = triton_config.of_json(override)
    except Invalid as error:
        return replace(one, trouble=str(error))
    wanted = configuration.wanted(one.versions)
    return replace(one, configuration=configuration, wanted=wanted, problem="")
