"""Retention: which versions are kept, and what goes for good.

    published --retire--> retired --remove--> removed, a tombstone that keeps its number
    published <-restore-- retired             failed  --remove--> removed

Nothing that is referred to is retired or removed. A version goes in an order that a crash may end
anywhere: its record first, then its manifest, then the blobs that nothing needs any more. Whatever
a crash leaves is garbage, and the next collection finds it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.models import By
from serve.control.publication.ensembles import PinnableVersions, ensembles_with, parts_of
from serve.control.publication.garbage import Garbage, Heap
from serve.control.publication.pipeline import DefaultRoutes
from serve.control.publication.records import Records
from serve.control.registry import Loadable
from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict, InUse
from serve.core.versions import VersionState

_ACTIVE = frozenset(
    {VersionState.CHECKED, VersionState.PUBLISHED}
)  # an ensemble in these needs its parts now
_KEPT = _ACTIVE | {VersionState.RETIRED}
_ENDED = frozenset({VersionState.RETIRED, VersionState.FAILED})


class Retention:
    """Retires, restores and removes versions, and collects garbage.

    `loadables` are all that Triton can load, for the ensembles among plain folders. Who holds
    `referring` may make a route or a label refer to a version. `keep` is how many versions of a
    model a collection leaves if nobody says it.
    """

    def __init__(
        self,
        records: Records,
        storage: ArtifactStorage,
        heap: Heap,
        *,
        parts: PinnableVersions,
        holding: DefaultRoutes,
        loadables: Callable[[], Mapping[str, Loadable]],
        referring: asyncio.Lock,
        keep: int = 10,
    ) -> None:
        self._records = records
        self._storage = storage
        self._heap = heap
        self._parts = parts
        self._holding = holding
        self._loadables = loadables
        self._referring = referring
        self._keep = keep

    def __repr__(self) -> str:
        return f"<Retention {self._records}>"

    async def retire(self, model: str, number: int, by: By) -> PublishedVersion:
        """Let replicas unload it; its files are kept. Again is no mistake. `InUse`, `Conflict`."""
        version = self._records.get(model, number)
        if version.state is VersionState.RETIRED:
            return version
        self._require(version, {VersionState.PUBLISHED}, "retired")
        return await self._move(version, VersionState.RETIRED, by, checked=self._require_unused)

    async def restore(self, model: str, number: int, by: By) -> PublishedVersion:
        """Publish a retired version again, as it was. Calls stay where they are."""
        version = self._records.get(model, number)
        if version.state is VersionState.PUBLISHED:
            return version
        self._require(version, {VersionState.RETIRED}, "restored")
        parts_of(version.configuration, self._parts)
        await self._holding.hold(model, number)
        return await self._move(version, VersionState.PUBLISHED, by)

    async def remove(self, model: str, number: int, by: By) -> PublishedVersion:
        """Take a retired or failed version away for good; its number is never given again."""
        version = self._records.get(model, number)
        if version.state is VersionState.REMOVED:
            return version
        self._require(version, _ENDED, "removed", "retire it first")
        removed = await self._move(
            version, VersionState.REMOVED, by, checked=self._require_unneeded
        )
        await self._storage.remove_manifest(model, number)
        return removed

    async def collect(
        self, keep: int | None, *, grace: float, dry_run: bool, by: By
    ) -> tuple[Garbage, ...]:
        """Take away what nothing needs; gives what went, or would with `dry_run`.

        The newest `keep` versions of each model stay, and blobs that are younger than `grace`
        seconds: somebody may be about to need them.
        """
        await self._records.refresh()
        keep = self._keep if keep is None else keep
        doomed = self._doomed(keep)
        if not dry_run:
            doomed = [one for one in doomed if await self._removed(one, by)]
        found = [
            Garbage("version", f"{one.model} version {one.number}", one.size, _why(one, keep))
            for one in doomed
        ]
        gone = {(version.model, version.number) for version in doomed}
        async with self._records.collecting:
            found += await self._heap.sweep(gone, grace=grace, dry_run=dry_run)
        return tuple(found)

    def users(
        self, version: PublishedVersion, states: Collection[VersionState] = _ACTIVE
    ) -> tuple[str, ...]:
        """What refers to a version: the route, labels, and ensembles in one of these states."""
        decisions, found = self._records.decisions, []
        route = decisions.route(version.model)
        if route is not None and version.number in route.weights:
            found.append("the route")
        for label, number in decisions.labels(version.model).items():
            if number == version.number:
                found.append(f"label '{label}'")
        if version.state is VersionState.PUBLISHED:
            found += [f"label '{label}' (pending)" for label in version.labels]
            found += ["the route (pending)"] * version.live
        found += ensembles_with(version, decisions, states)
        for name, one in self._loadables().items():
            if not one.published and version.physical and version.physical in one.composing_models:
                found.append(f"ensemble '{name}' of the model repository")
        return tuple(found)

    def _doomed(self, keep: int) -> list[PublishedVersion]:
        """What a collection removes: ended, not among the newest, and not referred to."""
        found: list[PublishedVersion] = []
        for model in self._records.decisions.versions:
            left = [one for one in self._records.of(model) if one.state is not VersionState.REMOVED]
            old = left[: max(len(left) - keep, 0)]
            found += [one for one in old if one.state in _ENDED and not self.users(one, _KEPT)]
        return found

    async def _removed(self, version: PublishedVersion, by: By) -> bool:
        """Remove it, unless somebody has just restored it or refers to it now."""
        why = By(by.author, by.reason or "garbage collection")
        try:
            await self.remove(version.model, version.number, why)
        except Conflict:
            return False
        return True

    def _require(
        self,
        version: PublishedVersion,
        states: Collection[VersionState],
        what: str,
        try_this: str = "",
    ) -> None:
        if version.state not in states:
            raise Conflict(
                f"version {version.number} of model '{version.model}' cannot be {what}",
                why=f"its state is '{version.state.value}'",
                try_this=try_this,
            )

    def _require_unused(self, version: PublishedVersion) -> None:
        self._refuse(version, self.users(version))

    def _require_unneeded(self, version: PublishedVersion) -> None:
        self._refuse(version, self.users(version, _KEPT))

    def _refuse(self, version: PublishedVersion, users: Collection[str]) -> None:
        if users:
            raise InUse(f"version {version.number} of model '{version.model}'", users)

    async def _move(
        self,
        version: PublishedVersion,
        state: VersionState,
        by: By,
        *,
        checked: Callable[[PublishedVersion], None] = lambda _: None,
    ) -> PublishedVersion:
        """The version in another state; `checked` sees the very record that is changed."""

        def edit(present: PublishedVersion) -> PublishedVersion:
            checked(present)
            reason = "" if state is VersionState.PUBLISHED else by.reason
            return present.moved(state, self._records.now, reason=reason, keep=False)

        async with self._referring:
            moved = await self._records.change(version, edit, by)
        if moved is None:
            raise Conflict(
                f"another request has just changed version {version.number} of model "
                f"'{version.model}'",
                try_this="repeat the request",
            )
        return moved


def _why(version: PublishedVersion, keep: int) -> str:
    return f"{version.state.value}, and not among the newest {keep}"
