"""Models, labels and routes: what people ask of the control plane, checked before it is written."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from serve.control.decisions import LABEL, MODEL, ROUTE, Decisions, label_key
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.registry import Model
from serve.control.snapshots import Publisher, physical
from serve.control.store import Change, Store, etag
from serve.core.errors import Invalid, UnknownLabel, UnknownModel, UnknownVersion, VersionNotReady
from serve.core.naming import check_label
from serve.core.objectives import Objective
from serve.core.routes import Split


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


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version: `ready`, `loading`, `failed` or `not wanted`, where, and why not."""

    number: int
    state: str
    replicas: tuple[str, ...]
    labels: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model with everything that is known of it."""

    model: Model
    state: str  # ready, partial, loading, failed, unloaded
    versions: tuple[VersionStatus, ...]
    labels: Mapping[str, int]
    split: Split | None
    routed: bool
    objective: str
    pool: str
    problems: tuple[str, ...]


class Models:
    """The commands and questions about models."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        fleet: Fleet,
        publisher: Publisher,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._fleet = fleet
        self._publisher = publisher
        self._decisions = decisions
        self._reload = reload
        self._writing = asyncio.Lock()

    @property
    def decisions(self) -> Decisions:
        """What is set at this moment."""
        return self._decisions()

    def all(self) -> tuple[ModelStatus, ...]:
        """Every model, by name."""
        return tuple(self.get(name) for name in sorted(self._inventory.models))

    def get(self, name: str) -> ModelStatus:
        """One model; `UnknownModel` when there is none."""
        model = self._model(name)
        decisions = self._decisions()
        view = self._publisher.snapshot.models.get(name)
        labels = decisions.labels(name)
        versions = tuple(self._version(model, number, labels) for number in self._numbers(model))
        return ModelStatus(
            model=model,
            state=_state(model, versions),
            versions=versions,
            labels=labels,
            split=view.split if view else decisions.split(name),
            routed=decisions.split(name) is not None,
            objective=decisions.objective(name),
            pool=decisions.pool(name),
            problems=self._problems(model, versions),
        )

    async def set_route(self, name: str, split: Split, by: By) -> Written:
        """Divide a model's calls; every version that gets calls must be ready somewhere."""
        model = self._model(name)
        for version in split.versions:
            self._require_ready(model, version)
        body = {"split": {str(version): weight for version, weight in split.shares}}
        return await self._write(ROUTE, name, body, by)

    async def set_label(self, name: str, label: str, version: int, by: By) -> Written:
        """Make a label name a version, which must be ready somewhere."""
        check_label(label)
        self._require_ready(self._model(name), version)
        return await self._write(LABEL, label_key(name, label), {"version": version}, by)

    async def remove_label(self, name: str, label: str, by: By) -> Written:
        """Remove a label; calls that name it are refused from then on."""
        self._model(name)
        labels = self._decisions().labels(name)
        if label not in labels:
            raise UnknownLabel(name, label, labels)
        return await self._write(LABEL, label_key(name, label), None, by)

    async def configure(
        self, name: str, *, objective: str | None, pool: str | None, by: By
    ) -> Written:
        """Set a model's objective or pool; None leaves it, an empty text removes it."""
        self._model(name)
        if pool and pool not in self._fleet.pools:
            pools = ", ".join(sorted(self._fleet.pools))
            raise Invalid(f"there is no pool '{pool}'", why=f"pools: {pools}")
        given = {"objective": objective and str(Objective.parse(objective)), "pool": pool}
        async with self._writing:  # what others set meanwhile is kept
            body = dict(self._decisions().entry(MODEL, name).body or {})
            body.update({key: value for key, value in given.items() if value is not None})
            return await self._write(MODEL, name, {k: v for k, v in body.items() if v}, by)

    async def _write(self, kind: str, key: str, after: object, by: By) -> Written:
        """Write, read back, publish."""
        change = Change(kind, key, after, by.author, by.reason, by.if_match)
        revision = await self._store.apply(change)
        await self._reload()
        return Written(await self._publisher.committed(), etag(revision))

    def _model(self, name: str) -> Model:
        model = self._inventory.models.get(name)
        if model is None:
            raise UnknownModel(name)
        return model

    def _require_ready(self, model: Model, version: int) -> None:
        if version not in self._numbers(model):
            raise UnknownVersion(model.name, str(version))
        status = self._version(model, version, {})
        if status.state != "ready":
            raise VersionNotReady(model.name, version, status.reason or status.state)

    def _numbers(self, model: Model) -> tuple[int, ...]:
        name = physical(model)
        held = {v for seen in self._fleet.observations.values() for v in seen.held.get(name, ())}
        return tuple(sorted(held | set(model.versions)))

    def _version(self, model: Model, number: int, labels: Mapping[str, int]) -> VersionStatus:
        view = self._publisher.snapshot.models.get(model.name)
        target = view.targets.get(number) if view else None
        names = tuple(sorted(label for label, version in labels.items() if version == number))
        if target is not None:
            return VersionStatus(number, "ready", target.replicas, names, "")
        if model.problem:
            return VersionStatus(number, "failed", (), names, model.problem)
        if model.unloaded:
            return VersionStatus(number, "not wanted", (), names, "the model was unloaded")
        if number not in model.wanted:
            why = "config.pbtxt's version_policy leaves it out"
            return VersionStatus(number, "not wanted", (), names, why)
        reasons = self._failures(model)
        if reasons:
            return VersionStatus(number, "failed", (), names, reasons[0])
        return VersionStatus(number, "loading", (), names, "no replica has loaded it yet")

    def _failures(self, model: Model) -> list[str]:
        return sorted(
            {
                failure.reason
                for (_, name), failure in self._fleet.failures.items()
                if name == model.name
            }
        )

    def _problems(self, model: Model, versions: tuple[VersionStatus, ...]) -> tuple[str, ...]:
        problems = [model.problem] if model.problem else self._failures(model)
        if model.trouble:
            problems.append(f"what was read before stays in force: {model.trouble}")
        ready = {status.number for status in versions if status.state == "ready"}
        decisions = self._decisions()
        split = decisions.split(model.name)
        for version in split.versions if split else ():
            if version not in ready:
                problems.append(f"the route sends calls to version {version}, which is not ready")
        for label, version in decisions.labels(model.name).items():
            if version not in ready:
                problems.append(f"label '{label}' names version {version}, which is not ready")
        return tuple(problems)


def _state(model: Model, versions: tuple[VersionStatus, ...]) -> str:
    if model.unloaded:
        return "unloaded"
    wanted = [status.state for status in versions if status.state != "not wanted"]
    if model.problem or (wanted and all(state == "failed" for state in wanted)):
        return "failed"
    if wanted and all(state == "ready" for state in wanted):
        return "ready"
    return "partial" if "ready" in wanted else "loading"
