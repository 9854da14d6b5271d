"""The inventory: the models that are wanted, from a repository on disk or from the replicas."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.control.decisions import SERVING, Decisions
from serve.control.fleet import Fleet, Held
from serve.control.registry import Model, Registry, discovered
from serve.control.store import Key
from serve.core.errors import Invalid, TritonFailed, Unavailable
from serve.triton import config as triton_config
from serve.triton.config import Configuration
from serve.triton.control import TritonControl

_log = logging.getLogger("servegate.inventory")


class Inventory:
    """All models by name. Without a repository it is discovering: what is ready is what exists."""

    def __init__(
        self, repository: Path | None, fleet: Fleet, *, decisions: Callable[[], Decisions]
    ) -> None:
        self._registry = Registry(repository) if repository is not None else None
        self._fleet = fleet
        self._decisions = decisions
        self._configs: dict[str, Configuration] = {}
        self._removed: set[str] = set()

    def __repr__(self) -> str:
        return f"<Inventory {self._registry or 'discovering'} removed={sorted(self._removed)}>"

    @property
    def is_discovering(self) -> bool:
        """Whether the replicas, not a folder, say what exists."""
        return self._registry is None

    @property
    def models(self) -> Mapping[str, Model]:
        """All models by name, those with problems included."""
        if self._registry is not None:
            return self._as_decided(self._registry.models)
        held: dict[str, set[int]] = {}
        for seen in self._fleet.observations.values():
            for name, versions in seen.held.items():
                held.setdefault(name, set()).update(versions)
        return discovered(
            {name: tuple(sorted(versions)) for name, versions in held.items()}, self._configs
        )

    @property
    def server_settings(self) -> Mapping[Key, Mapping[str, Any]]:
        """Triton's own settings that were decided, by kind and model."""
        return self._decisions().server_settings()

    @property
    def removed(self) -> frozenset[str]:
        """Models that are no longer to be served: their folder has gone, or they are unloaded."""
        unloaded = (name for name, model in self.models.items() if model.unloaded)
        return frozenset((*self._removed, *unloaded))

    def for_pool(self, pool: str) -> Mapping[str, Model]:
        """The models that the replicas of a pool should hold."""
        decisions = self._decisions()
        return MappingProxyType(
            {
                name: model
                for name, model in self.models.items()
                if decisions.pool(name) == pool and not model.unloaded
            }
        )

    async def scan(self, *, settled: bool = False) -> bool:
        """Look at the repository again; whether anything changed. See `Registry.scan`."""
        if self._registry is None:
            return False
        before = set(self._registry.models)
        try:
            changed = await asyncio.to_thread(self._registry.scan, settled=settled)
        except Invalid as error:
            _log.warning("%s; what was read last stays in force", error)
            return False
        self._removed |= before
        self._removed -= set(self._registry.models)
        return changed

    def _as_decided(self, models: Mapping[str, Model]) -> Mapping[str, Model]:
        """What is on disk, with what management calls have changed."""
        decisions = self._decisions()
        changed = {}
        for kind, name in decisions.entries:
            model = models.get(name) if kind == SERVING else None
            if model is not None:
                changed[name] = _decided(model, decisions)
        return MappingProxyType({**models, **changed}) if changed else models

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


def _decided(model: Model, decisions: Decisions) -> Model:
    if decisions.is_unloaded(model.name):
        return replace(model, wanted=(), unloaded=True)
    override = decisions.override(model.name)
    if override is None:
        return model
    try:
        configuration = triton_config.of_json(override)
    except Invalid as error:
        return replace(model, trouble=str(error))
    wanted = configuration.wanted(model.versions)
    return replace(model, configuration=configuration, wanted=wanted, problem="")
