"""Models, labels and routes: what people ask of the control plane, checked before it is written.

What is told of a version, in the order in which it usually happens:

| state               | means                                                           |
|---------------------|-----------------------------------------------------------------|
| uploaded, checked   | on its way to being published                                   |
| failed              | a check, the quarantine or a load said no: the reason says why  |
| loading             | replicas should hold it, and none may be called yet             |
| ready               | it can be called; `serving`: a route or label sends calls to it |
| not wanted, retired | no replica should hold it                                       |
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from serve.control.decisions import LABEL, MODEL, ROUTE, Decisions, label_key
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.reconciling.steering import Steering
from serve.control.registry import Model
from serve.control.snapshots import Publisher
from serve.control.storing.store import Change, Store, etag
from serve.core.errors import Invalid, UnknownLabel, UnknownModel, UnknownVersion, VersionNotReady
from serve.core.naming import check_label
from serve.core.objectives import Objective
from serve.core.routes import Split
from serve.core.versions import State

_ASIDE = ("not wanted", State.RETIRED)


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
    """One version: how it is (see above), where it may be called, and why not."""

    number: int
    state: str
    replicas: tuple[str, ...]
    labels: tuple[str, ...]
    reason: str
    serving: bool = False
    published: bool = False


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
        steering: Steering,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._fleet = fleet
        self._publisher = publisher
        self._steering = steering
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
        """Make a label name a version, which must be ready somewhere.

        A label that has callers moves only to a version that is ready on enough replicas to take
        them over.
        """
        check_label(label)
        self._require_ready(self._model(name), version)
        before = self._decisions().labels(name).get(label)
        if before not in (None, version) and not self.ready_enough(name, version):
            raise VersionNotReady(name, version, f"too few replicas hold it to take over '{label}'")
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

    def ready_enough(self, name: str, version: int) -> bool:
        """Whether so many replicas may be called for a version that it can take over."""
        view = self._publisher.snapshot.models.get(name)
        target = view.targets.get(version) if view else None
        pool = self._decisions().pool(name)
        up = [one for one in self._fleet.in_pool(pool) if self._fleet.observations[one].is_up]
        needed = min(self._steering.enough(pool), max(len(up), 1))
        return target is not None and len(target.replicas) >= needed

    def serving_now(self, name: str) -> int | None:
        """The version to which calls without a version go, where nobody has decided that."""
        view = self._publisher.snapshot.models.get(name)
        return max(view.targets, default=None) if view and not view.routed else None

    def main_version(self, name: str) -> int | None:
        """The version that gets most calls without a version; None when nothing serves."""
        view = self._publisher.snapshot.models.get(name)
        split = view.split if view else None
        return max(split.shares, key=lambda share: share[1])[0] if split else None

    def version(self, name: str, number: int) -> VersionStatus:
        """One version as it is seen now; `UnknownModel`, `UnknownVersion`."""
        model = self._model(name)
        if number not in self._numbers(model):
            raise UnknownVersion(name, str(number))
        return self._version(model, number, self._decisions().labels(name))

    def replicas_for(self, name: str) -> tuple[str, ...]:
        """The replicas that should hold a model, whether they answer or not."""
        return self._fleet.in_pool(self._decisions().pool(name))

    def _require_ready(self, model: Model, version: int) -> None:
        if version not in self._numbers(model):
            raise UnknownVersion(model.name, str(version))
        status = self._version(model, version, {})
        if status.state != State.READY:
            raise VersionNotReady(model.name, version, status.reason or status.state)

    def _numbers(self, model: Model) -> tuple[int, ...]:
        names = {one.name for one in model.loadables}
        held = {
            version
            for seen in self._fleet.observations.values()
            for name in names
            for version in seen.held.get(name, ())
        }
        known = {
            number
            for number, version in self._decisions().versions.get(model.name, {}).items()
            if version.state is not State.REMOVED
        }
        return tuple(sorted(held | known | set(model.versions)))

    def _version(self, model: Model, number: int, labels: Mapping[str, int]) -> VersionStatus:
        view = self._publisher.snapshot.models.get(model.name)
        target = view.targets.get(number) if view else None
        names = tuple(sorted(label for label, version in labels.items() if version == number))
        record = self._decisions().versions.get(model.name, {}).get(number)
        published = record is not None
        if target is not None:
            serving = bool(names) or (
                view is not None and view.split is not None and number in view.split.versions
            )
            holders = target.replicas
            return VersionStatus(number, State.READY, holders, names, "", serving, published)
        if record is not None and not record.is_published:
            return VersionStatus(number, record.state, (), names, record.reason, False, True)
        state, why = self._absent(model, number)
        return VersionStatus(number, state, (), names, why, False, published)

    def _absent(self, model: Model, number: int) -> tuple[str, str]:
        """Why nobody may be called for a version, as a state and a sentence."""
        if model.unloaded:
            return "not wanted", "the model was unloaded"
        one = model.holding(number)
        if one is None:
            return "not wanted", "a replica holds it by itself"
        if one.problem:
            return State.FAILED, one.problem
        if number not in one.wanted:
            if one.published:
                room = self._inventory.no_room(model.name, number)
                return ("failed", room) if room else ("not wanted", "nothing refers to it")
            return "not wanted", "config.pbtxt's version_policy leaves it out"
        reasons = self._failures(model)
        if reasons:
            return State.FAILED, reasons[0]
        waiting = sorted(set(self._fleet.waiting.values()))
        return State.LOADING, waiting[0] if waiting else "no replica has loaded it yet"

    def _failures(self, model: Model) -> list[str]:
        return sorted(
            {
                failure.reason
                for (_, name), failure in self._fleet.failures.items()
                if any(name == one.name for one in model.loadables)
            }
        )

    def _problems(self, model: Model, versions: tuple[VersionStatus, ...]) -> tuple[str, ...]:
        problems = [model.problem] if model.problem else self._failures(model)
        for one in model.loadables:
            if one.trouble and one.published:
                problems.append(one.trouble)
            elif one.trouble:
                problems.append(f"what was read before stays in force: {one.trouble}")
        problems += [
            f"version {status.number}: {status.reason}"
            for status in versions
            if status.published and status.state == State.FAILED and status.reason not in problems
        ]
        ready = {status.number for status in versions if status.state == State.READY}
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
    states = [status.state for status in versions if status.state not in _ASIDE]
    if model.problem or (states and all(state == State.FAILED for state in states)):
        return "failed"
    if states and all(state == State.READY for state in states):
        return "ready"
    return "partial" if State.READY in states else "loading"
