"""Models, labels and routes: what people ask of the control plane, checked before it is written.

Waiting: what versions are to be called once they are ready, and who has a say in it meanwhile.

A push may ask that a label names its version, or that all calls go to it, as soon as it is ready.
Whoever sets that label or the route in the meantime was asked for later, so nobody waits for it any
more: a version that becomes ready never undoes what a person has decided since.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, Unpack

from serve.control.decisions import DEFAULT_POOL, LABEL, MODEL, ROUTE, Decisions, label_key
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.reconciliation.busy_replicas import Steering
from serve.control.snapshots import Publisher
from serve.control.statuses import ModelStatus, Statuses, VersionStatus
from serve.control.storage.store import Store, StoreEdit, etag
from serve.control.versions import VERSION, PublishedVersion
from serve.core.errors import (
    Conflict,
    Invalid,
    PreconditionFailed,
    UnknownLabel,
    VersionNotReady,
)
from serve.core.names import check_label
from serve.core.objectives import Objective
from serve.core.routes import Mirror, Route, RouteRules, Split
from serve.core.versions import VersionState

# --- waiting --------------------------------------------------------------------------------------


GiveUp = Callable[[PublishedVersion], PublishedVersion]


def without_route(version: PublishedVersion) -> PublishedVersion:
    """It waits for all calls no more."""
    return replace(version, live=False)


def without_label(label: str) -> GiveUp:
    """It waits for this label no more."""

    def give_up(version: PublishedVersion) -> PublishedVersion:
        return replace(version, labels=tuple(one for one in version.labels if one != label))

    return give_up


def given_up(
    decisions: Decisions, model: str, give_up: GiveUp, author: str, reason: str
) -> list[StoreEdit]:
    """The changes of version records that go with it, each of the very record that was read."""
    found = []
    for version in decisions.versions.get(model, {}).values():
        after = give_up(version)
        if after != version:
            found.append(
                StoreEdit(VERSION, version.key, after.to_body(), author, reason, version.etag)
            )
    return found


# --- models, labels and routes --------------------------------------------------------------------


_NO_ETAGS: Mapping[str, str] = MappingProxyType({})
_ATTEMPTS = 10  # each lost one means that somebody else's write went through


@dataclass(frozen=True, slots=True)
class By:
    """Who asks for a change, why, and which state they had seen (an ETag, or empty)."""

    author: str
    reason: str = ""
    if_match: str = ""


class Written(NamedTuple):
    """A change that was written: the generation in which it holds, and the thing's new ETag."""

    generation: int
    etag: str


class Models:
    """The commands and questions about models."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        fleet: Fleet,
        publisher: Publisher,
        steering: Steering,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        undelivered: Callable[[str, PublishedVersion], str] = lambda replica, version: "",
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._fleet = fleet
        self._publisher = publisher
        self._steering = steering
        self._decisions = decisions
        self._reload = reload
        self._statuses = Statuses(
            inventory, fleet, publisher, decisions=decisions, undelivered=undelivered
        )
        self._writing = asyncio.Lock()
        self.referring = asyncio.Lock()  # who holds it may refer to versions, or retire them

    @property
    def decisions(self) -> Decisions:
        """What is set at this moment."""
        return self._decisions()

    def all(self) -> tuple[ModelStatus, ...]:
        """Every model, by name."""
        return self._statuses.all()

    def get(self, name: str) -> ModelStatus:
        """One model; `UnknownModel` when there is none."""
        return self._statuses.get(name)

    def version(self, name: str, number: int) -> VersionStatus:
        """One version as it is seen now; `UnknownModel`, `UnknownVersion`."""
        return self._statuses.version(name, number)

    async def set_route(
        self,
        name: str,
        split: Split,
        by: By,
        **rules: Unpack[RouteRules],
    ) -> Written:
        """Divide a model's calls; every version that gets calls must be ready somewhere.

        A version with weight 0 need not be ready, but it must exist. Rules that are not given stay.
        """
        async with self.referring:
            route = replace(self._decisions().route(name) or Route(split), split=split, **rules)
            self._require_callable(name, route)
            change = StoreEdit(ROUTE, name, route.to_json(), *_of(by))
            return await self._supersede({name: change}, without_route)

    async def set_routes(
        self,
        routes: Mapping[str, Route],
        by: By,
        *,
        etags: Mapping[str, str] = _NO_ETAGS,
        dry_run: bool = False,
    ) -> Written:
        """Set the routes of several models at once: calls see all of them, or none.

        `etags` are of the routes as they were read, where that matters. A dry run only checks.
        """
        async with self.referring:
            for name, route in routes.items():
                self._require_callable(name, route)
                present = self._decisions().entry(ROUTE, name).etag
                if etags.get(name, "") not in ("", "*", present):
                    raise PreconditionFailed(f"{ROUTE} '{name}'", present)
            if dry_run or not routes:
                return Written(self._publisher.snapshot.generation, "")
            changes = {
                name: StoreEdit(
                    *(ROUTE, name, route.to_json(), by.author, by.reason, etags.get(name, ""))
                )
                for name, route in routes.items()
            }
            return await self._supersede(changes, without_route)

    def _require_callable(self, name: str, route: Route) -> None:
        """Every version that gets calls is ready somewhere, and every other one exists."""
        self._statuses.model(name)
        for version, weight in route.weights.items():
            if weight:
                self._require_ready(name, version)
            else:
                self._statuses.version(name, version)
        if route.mirror is not None:
            self._require_mirrorable(name, route.mirror)

    def _require_mirrorable(self, name: str, mirror: Mirror) -> None:
        """Copies of calls do no harm to this version, or the user accepts what they do."""
        view = self._publisher.snapshot.models.get(name)
        if view is None:
            return
        if view.sequences:
            raise Invalid(
                f"calls of model '{name}' cannot be mirrored",
                why="it serves sequences, whose state would change with each copy",
            )
        candidate = view.targets.get(mirror.version)
        if candidate is not None and candidate.calls_others and not mirror.code:
            raise Invalid(
                f"calls of model '{name}' are not mirrored to version {mirror.version}",
                why="it runs code or calls other models, which copies of calls would run as well",
                try_this="if that does no harm, add --mirror-code (API: mirror.code)",
            )

    async def set_label(self, name: str, label: str, version: int, by: By) -> Written:
        """Make a label name a version, which must be ready somewhere.

        A label that has callers moves only to a version that is ready on enough replicas to take
        them over.
        """
        check_label(label)
        async with self.referring:
            self._require_ready(name, version)
            before = self._decisions().labels(name).get(label)
            if before not in (None, version) and not self.ready_enough(name, version):
                why = f"too few replicas have loaded it to take over label '{label}'"
                raise VersionNotReady(name, version, why)
            change = StoreEdit(LABEL, label_key(name, label), {"version": version}, *_of(by))
            return await self._supersede({name: change}, without_label(label))

    async def remove_label(self, name: str, label: str, by: By) -> Written:
        """Remove a label; calls that name it are refused from then on."""
        self._statuses.model(name)
        labels = self._decisions().labels(name)
        if label not in labels:
            raise UnknownLabel(name, label, labels)
        change = StoreEdit(LABEL, label_key(name, label), None, *_of(by))
        return await self._supersede({name: change}, without_label(label))

    async def configure(
        self, name: str, *, objective: str | None, pool: str | None, by: By
    ) -> Written:
        """Set a model's objective or pool; None leaves it, an empty text removes it."""
        self._statuses.model(name)
        pools = self._fleet.pools | self._decisions().decided_pools
        if pool and pool not in pools:
            raise Invalid(
                f"there is no pool '{pool}'",
                why=f"the pools are: {', '.join(sorted(pools))}",
                try_this=f"servegate hints set {pool} --to-zero, if it has no replicas yet",
            )
        if pool is not None:
            self._require_room(name, pool or DEFAULT_POOL)
        given = {"objective": objective and str(Objective.parse(objective)), "pool": pool}
        async with self._writing:  # what others set meanwhile is kept
            body = dict(self._decisions().entry(MODEL, name).body or {})
            body.update({key: value for key, value in given.items() if value is not None})
            change = StoreEdit(MODEL, name, {k: v for k, v in body.items() if v}, *_of(by))
            return await self._write([change])

    async def _supersede(self, changes: Mapping[str, StoreEdit], give_up: GiveUp) -> Written:
        """Write them, and that no version of their models waits for it any more."""
        edits = tuple(changes.values())
        for _ in range(_ATTEMPTS):
            waiting = [
                edit
                for name, change in changes.items()
                for edit in given_up(self._decisions(), name, give_up, change.author, change.reason)
            ]
            try:
                return await self._write([*edits, *waiting])
            except PreconditionFailed:
                await self._reload()
                for one in edits:
                    present = self._decisions().entry(one.kind, one.key)
                    if not waiting or one.if_match not in ("", "*", present.etag):
                        raise
        raise Conflict(
            f"other requests keep changing the versions of model '{', '.join(changes)}'",
            try_this="repeat the request",
        )

    async def _write(self, changes: Sequence[StoreEdit]) -> Written:
        """Write, read back, publish; gives what became of the first."""
        revision, *_ = await self._store.apply_all(changes)
        await self._reload()
        return Written(await self._publisher.committed(), etag(revision))

    def ready_enough(self, name: str, version: int) -> bool:
        """Whether so many replicas may be called for a version that it can take over."""
        view = self._publisher.snapshot.models.get(name)
        target = view.targets.get(version) if view else None
        pools = [one for one in self._decisions().pools(name) if self._fleet.in_pool(one)]
        if target is None:
            return False
        up = [
            one
            for one in self._fleet.in_pool(*pools)
            if self._fleet.observations[one].is_up
            and self._fleet.can_hold(one, target.physical_name)
        ]
        enough = sum(self._steering.enough(pool) for pool in pools) or 1
        return len(target.replicas) >= min(enough, max(len(up), 1))

    def serving_now(self, name: str) -> int | None:
        """The version to which calls without a version go, where nobody has decided that.

        Before any may be called it is the one to which they will go; None when that has failed.
        """
        if self._decisions().route(name) is not None:
            return None
        view = self._publisher.snapshot.models.get(name)
        if view and view.targets:
            return max(view.targets)
        model = self._inventory.models.get(name)
        if model is None or (view and view.failed):
            return None
        return max(model.wanted, default=None)

    def main_version(self, name: str) -> int | None:
        """The version that gets most calls without a version; None when nothing serves."""
        view = self._publisher.snapshot.models.get(name)
        if view is None or view.route is None:
            return None
        return max(view.route.split.shares, key=lambda share: share[1])[0]

    def _require_room(self, name: str, pool: str) -> None:
        """`Conflict` when something that is needed would lose its place."""
        body = {**(self._decisions().entry(MODEL, name).body or {}), "pool": pool}
        displaced = self._inventory.displaced(MODEL, name, body)
        for (model, version), why in sorted(displaced.items()):
            raise Conflict(
                f"model '{name}' cannot move to pool '{pool}'",
                why=f"{model}@{version} could no longer be served: {why}",
                try_this="remove unused versions with servegate model rm, or raise --pool-memory",
            )

    def _require_ready(self, name: str, version: int) -> None:
        status = self._statuses.version(name, version)
        if status.state != VersionState.READY:
            raise VersionNotReady(name, version, status.reason or status.state)


def _of(by: By) -> tuple[str, str, str]:
    return by.author, by.reason, by.if_match
