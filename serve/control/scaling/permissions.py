"""Allowing: what people set of pools, checked before it is written, and how each pool is."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.capacity.scaling.signals import Bounds
from serve.control.decisions import POOL, Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.models import By, Written
from serve.control.scaling.pools import (
    NOTHING,
    PoolSettings,
    Usual,
    check_pool_name,
    known_pools,
    settings_of,
)
from serve.control.storage.store import Store, StoreEdit, etag
from serve.core.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool. `is_set` says whether somebody has decided its settings; `etag` is of that.

    `bounds` hold now, by `schedule` if that is not empty. `beside` are the pools of its group,
    itself included; `models` those that its replicas should hold.
    """

    name: str
    settings: PoolSettings
    is_set: bool
    etag: str
    bounds: Bounds
    schedule: str
    replicas: tuple[str, ...]
    models: tuple[str, ...]
    beside: tuple[str, ...]


class Pools:
    """The commands and questions about pools.

    `publish` gives the generation in which a change holds; `wall` is seconds of the epoch; `usual`
    is what is allowed of pools of which nobody has set anything.
    """

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        fleet: Fleet,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        publish: Callable[[], Awaitable[int]],
        wall: Callable[[], float],
        usual: Usual = NOTHING,
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._fleet = fleet
        self._decisions = decisions
        self._reload = reload
        self._publish = publish
        self._wall = wall
        self._usual = usual

    def __repr__(self) -> str:
        return f"<Pools {', '.join(self.names())}>"

    def names(self) -> tuple[str, ...]:
        """All that there are: with replicas, with models, or with settings."""
        models = self._inventory.models
        return known_pools(self._decisions(), self._fleet.pools, models, self._usual)

    def all(self) -> tuple[PoolStatus, ...]:
        """Every pool, by name."""
        return tuple(self._status(name) for name in self.names())

    def get(self, name: str) -> PoolStatus:
        """One pool; `NotFound` where there is none."""
        names = self.names()
        if name not in names:
            known = f"pools: {', '.join(names)}" if names else "there are no pools yet"
            try_this = (
                f"use servegate hints set {name} --most 4, or start a replica with --triton "
                f"ADDRESS@{name}"
            )
            raise NotFound(f"there is no pool '{name}'", why=known, try_this=try_this)
        return self._status(name)

    async def set(self, name: str, body: Mapping[str, Any], by: By) -> Written:
        """Allow this of a pool, in place of what was allowed. It need not have a replica yet.

        `Conflict` where its group would lose the place of something that is needed.
        """
        check_pool_name(name)
        settings = PoolSettings.of(body).to_json()
        self._require_room(name, settings)
        return await self._write(name, settings, by)

    async def clear(self, name: str, by: By) -> Written:
        """Allow what is usual of a pool; of one that has nothing set, too."""
        entry = self._decisions().entry(POOL, name)
        if entry.body is None and by.if_match in ("", "*", entry.etag):
            self.get(name)
            return Written(await self._publish(), entry.etag)
        self._require_room(name, None)
        return await self._write(name, None, by)

    async def restore(self, name: str, body: Mapping[str, Any] | None, by: By) -> Written:
        """Allow what was allowed once; None is what is usual."""
        return await (self.clear(name, by) if body is None else self.set(name, body, by))

    async def _write(self, name: str, body: Mapping[str, Any] | None, by: By) -> Written:
        revision = await self._store.apply(
            StoreEdit(POOL, name, body, by.author, by.reason, by.if_match)
        )
        await self._reload()
        return Written(await self._publish(), etag(revision))

    def _status(self, name: str) -> PoolStatus:
        decisions = self._decisions()
        settings = settings_of(decisions, name, self._usual)
        bounds, schedule = settings.bounds(self._wall())
        entry = decisions.entry(POOL, name)
        return PoolStatus(
            name,
            settings,
            entry.body is not None,
            entry.etag,
            bounds,
            schedule,
            self._fleet.in_pool(name),
            tuple(one for one in self._inventory.models if name in decisions.pools(one)),
            decisions.beside(name),
        )

    def _require_room(self, name: str, body: Mapping[str, Any] | None) -> None:
        displaced = self._inventory.displaced(POOL, name, body)
        for (model, version), why in sorted(displaced.items()):
            group = (body or {}).get("group")
            whither = f"join group '{group}'" if group else "leave its group"
            raise Conflict(
                f"pool '{name}' cannot {whither}",
                why=f"{model}@{version} would not be served: {why}",
                try_this="remove models that are not needed with servegate model rm, or increase "
                "--pool-memory",
            )
