"""Statuses: what is told of models and versions, from what is decided and what is seen.

What is told of a version, in the order in which it usually happens:

| state               | means                                                           |
|---------------------|-----------------------------------------------------------------|
| uploaded, checked   | on its way to being published                                   |
| failed              | a check, the quarantine or a load said no: the reason says why  |
| loading             | replicas should hold it, and none may be called yet             |
| asleep              | its pool has been scaled to zero; the first call wakes it       |
| ready               | it can be called; `serving`: a route or label sends calls to it |
| not wanted, retired | no replica should hold it                                       |
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.registry import Loadable, Model
from serve.control.snapshots import Publisher
from serve.control.versions import PublishedVersion
from serve.core.errors import UnknownModel, UnknownVersion
from serve.core.routes import Route, Split
from serve.core.snapshot import VersionTarget
from serve.core.versions import VersionState

ASLEEP = "asleep"
_ASIDE = ("not wanted", VersionState.RETIRED)
_NO_FORMS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version: how it is (see above), where it may be called, and why not.

    `flavours` are the forms in which replicas hold it, for a version that has several; `problems`
    say where it is not held as well as it could be. `published` says that it was pushed, and
    `pending` that it has not got as far as to be loaded: it is on its way, or was refused.
    """

    number: int
    state: str
    replicas: tuple[str, ...]
    labels: tuple[str, ...]
    reason: str
    serving: bool = False
    published: bool = False
    flavours: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[str, ...] = ()
    pending: bool = False


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model with everything that is known of it. `pools` hold it: its own, and its group's."""

    model: Model
    state: str  # ready, partial, loading, asleep, failed, unloaded
    versions: tuple[VersionStatus, ...]
    labels: Mapping[str, int]
    split: Split | None
    route: Route | None  # what people set
    objective: str
    pool: str
    problems: tuple[str, ...]
    pools: tuple[str, ...] = ()


class Statuses:
    """The questions about models. `undelivered`: why a replica's Triton does not find a version."""

    def __init__(
        self,
        inventory: Inventory,
        fleet: Fleet,
        publisher: Publisher,
        *,
        decisions: Callable[[], Decisions],
        undelivered: Callable[[str, PublishedVersion], str],
    ) -> None:
        self._inventory = inventory
        self._fleet = fleet
        self._publisher = publisher
        self._decisions = decisions
        self._undelivered = undelivered

    def __repr__(self) -> str:
        return f"<Statuses models={len(self._inventory.models)}>"

    def all(self) -> tuple[ModelStatus, ...]:
        """Every model, by name."""
        return tuple(self._status(model) for model in self._inventory.models.values())

    def get(self, name: str) -> ModelStatus:
        """One model; `UnknownModel` when there is none."""
        return self._status(self.model(name))

    def _status(self, model: Model) -> ModelStatus:
        name, decisions = model.name, self._decisions()
        route = decisions.route(name)
        view = self._publisher.snapshot.models.get(name)
        in_force = view.route if view else route
        labels = decisions.labels(name)
        versions = tuple(self._version(model, number, labels) for number in self._numbers(model))
        return ModelStatus(
            model=model,
            state=_state(model, versions),
            versions=versions,
            labels=labels,
            split=in_force.split if in_force else None,
            route=route,
            objective=decisions.objective(name),
            pool=decisions.pool(name),
            problems=self._problems(model, versions),
            pools=decisions.pools(name),
        )

    def version(self, name: str, number: int) -> VersionStatus:
        """One version as it is seen now; `UnknownModel`, `UnknownVersion`."""
        model = self.model(name)
        if number not in self._numbers(model):
            raise UnknownVersion(name, str(number))
        return self._version(model, number, self._decisions().labels(name))

    def model(self, name: str) -> Model:
        """All that Triton can load of a model; `UnknownModel`."""
        model = self._inventory.models.get(name)
        if model is None:
            raise UnknownModel(name)
        return model

    def _numbers(self, model: Model) -> tuple[int, ...]:
        names = {one.name for one in model.loadables}
        held = {version for name in names for version in self._fleet.holding.versions(name)}
        known = {
            number
            for number, version in self._decisions().versions.get(model.name, {}).items()
            if version.state is not VersionState.REMOVED
        }
        return tuple(sorted(held | known | set(model.versions)))

    def _version(self, model: Model, number: int, labels: Mapping[str, int]) -> VersionStatus:
        view = self._publisher.snapshot.models.get(model.name)
        target = view.targets.get(number) if view else None
        names = tuple(sorted(label for label, version in labels.items() if version == number))
        record = self._decisions().versions.get(model.name, {}).get(number)
        published = record is not None
        if target is not None:
            serving = bool(names) or (view is not None and number in view.called)
            return VersionStatus(
                *(number, VersionState.READY, target.replicas, names, "", serving, published),
                *self._flavours(model, target),
            )
        if record is not None and not record.is_published:
            return VersionStatus(
                *(number, record.state, (), names, record.reason, False, True),
                pending=record.state is not VersionState.RETIRED,
            )
        state, why = self._absent(model, number)
        return VersionStatus(number, state, (), names, why, False, published)

    def _absent(self, model: Model, number: int) -> tuple[str, str]:
        """Why nobody may be called for a version, as a state and a sentence."""
        if model.unloaded:
            return "not wanted", "the model was unloaded"
        one = model.holding(number)
        if one is None:
            return "not wanted", "a replica has loaded it by itself"
        if one.problem:
            return VersionState.FAILED, one.problem
        if number not in one.wanted:
            if one.published:
                room = self._inventory.no_room(model.name, number)
                return (
                    (VersionState.FAILED, room)
                    if room
                    else ("not wanted", _idle(model.name, number))
                )
            return "not wanted", "the version_policy in config.pbtxt excludes it"
        reasons = self._failures(one)
        if reasons:
            return VersionState.FAILED, reasons[0]
        replicas = self._replicas(model.name)
        view = self._publisher.snapshot.models.get(model.name)
        if not replicas and view is not None and view.asleep:
            return ASLEEP, "its pool is scaled to zero, and the first call wakes it"
        if not replicas:
            return (
                VersionState.FAILED,
                f"pool '{self._decisions().pool(model.name)}' has no replica",
            )
        if not any(self._fleet.can_hold(name, one.name) for name in replicas):
            return VersionState.FAILED, self._unfit(one.name, replicas)[0]
        waiting = self._lacking(one, number) or sorted(
            {self._fleet.waiting[name] for name in replicas if name in self._fleet.waiting}
        )
        return VersionState.LOADING, waiting[0] if waiting else "no replica has loaded it yet"

    def _flavours(
        self, model: Model, target: VersionTarget
    ) -> tuple[Mapping[str, str], tuple[str, ...]]:
        """In which forms a version is held, and where that is not the form that should be."""
        if not any(one.flavours.preferred for one in model.loadables):
            return _NO_FORMS, ()
        name = target.physical_name
        forms = {one: self._fleet.flavours.get((one, name), "") for one in target.replicas}
        replicas = self._replicas(model.name)
        told = []
        for replica in replicas:
            choice = self._fleet.choice(replica, name)
            for flavour, why in choice.failed.items() if choice else ():
                told.append(f"replica {replica} cannot run flavour '{flavour}': {why}")
        told += self._unfit(name, replicas)
        return MappingProxyType({k: v for k, v in forms.items() if v}), tuple(told)

    def _replicas(self, model: str) -> tuple[str, ...]:
        """Those that should hold a model: of its pool, and of the others of the group."""
        return self._fleet.in_pool(*self._decisions().pools(model))

    def _unfit(self, name: str, replicas: Iterable[str]) -> list[str]:
        """Which of these replicas can run no form of what is under this name in Triton."""
        found = []
        for replica in replicas:
            choice = self._fleet.choice(replica, name)
            if choice is not None and not choice.flavour:
                why = "; ".join(f"'{one}': {lacks}" for one, lacks in choice.lacking.items())
                found.append(f"replica {replica} cannot run any of its flavours: {why}")
        return found

    def _failures(self, *loadables: Loadable) -> list[str]:
        names = {one.name for one in loadables}
        failures = self._fleet.failures.items()
        return sorted({failure.reason for (_, name), failure in failures if name in names})

    def _lacking(self, one: Loadable, number: int) -> list[str]:
        """Why replicas that should hold a published version do not find it."""
        record = self._decisions().versions.get(one.model, {}).get(number)
        if record is None or not one.published or number not in one.wanted:
            return []
        holding = self._fleet.holding
        up = set(self._replicas(one.model)) & holding.up
        lacking = up - holding.of(one.name, number)
        return sorted({self._undelivered(name, record) for name in lacking} - {""})

    def _problems(self, model: Model, versions: tuple[VersionStatus, ...]) -> tuple[str, ...]:
        problems = [model.problem] if model.problem else self._failures(*model.loadables)
        for one in model.loadables:
            if one.trouble and one.published:
                problems.append(one.trouble)
            elif one.trouble:
                problems.append(f"the previous configuration stays active: {one.trouble}")
            if one.passed_over:
                problems.append(one.passed_over)
        problems += [
            status.reason
            if status.reason.startswith("version ")
            else f"version {status.number}: {status.reason}"
            for status in _loadable(versions)
            if status.published
            and status.state == VersionState.FAILED
            and status.reason not in problems
        ]
        problems += [
            f"version {number}: {why}"
            for one in model.loadables
            for number in one.wanted
            for why in self._lacking(one, number)
        ]
        problems += [
            f"version {status.number}: {why}" for status in versions for why in status.problems
        ]
        ready = {
            status.number for status in versions if status.state in (VersionState.READY, ASLEEP)
        }
        decisions = self._decisions()
        route = decisions.route(model.name)
        for version in route.versions if route else ():
            if version not in ready:
                problems.append(f"the route sends calls to version {version}, which is not ready")
        for label, version in decisions.labels(model.name).items():
            if version not in ready:
                problems.append(f"label '{label}' points to version {version}, which is not ready")
        return tuple(problems)


def _idle(model: str, number: int) -> str:
    return f"nothing refers to it; 'servegate model load {model}@{number}' loads it"


def _loadable(versions: tuple[VersionStatus, ...]) -> tuple[VersionStatus, ...]:
    """What says how a model is: a push on its way or refused does not, where others are there."""
    return tuple(one for one in versions if not one.pending) or versions


def _state(model: Model, versions: tuple[VersionStatus, ...]) -> str:
    if model.unloaded:
        return "unloaded"
    states = [status.state for status in _loadable(versions) if status.state not in _ASIDE]
    if model.problem or (states and all(state == VersionState.FAILED for state in states)):
        return "failed"
    if states and all(state == VersionState.READY for state in states):
        return "ready"
    if VersionState.READY in states:
        return "partial"
    return ASLEEP if ASLEEP in states else "loading"
