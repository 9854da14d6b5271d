"""The overview: how a version is batched, what came of that in the last minutes, and what may be
wrong with it.

What holds is the configuration as it was decided. How many instances there are only a Triton that
holds it knows, so one is asked; where none answers, the configuration's own number is told.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from serve.capacity.service import ServiceTime
from serve.control.batching.advice import BatchingAdvice, advise
from serve.control.batching.hints import BatchingHint, BatchingHints
from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import BatchingObserver
from serve.control.batching.situation import NO_BATCHES, Batched, Situation, batched_of
from serve.control.batching.steps import NEWEST, CalledModel, EnsembleSteps, parts_of
from serve.control.batching.windows import CountWindow
from serve.control.fleet import Fleet
from serve.control.models import Models
from serve.control.registry import Loadable
from serve.control.revision import Revised, revised_of
from serve.control.snapshots import Publisher
from serve.core.errors import Invalid, TritonFailed, Unavailable
from serve.core.objectives import Objective
from serve.core.replicas import Replica
from serve.triton.canonical import canonical_text
from serve.triton.config import Configuration

_log = logging.getLogger("servegate.batching")
AskConfiguration = Callable[[Replica, str], Awaitable[Configuration]]


@dataclass(frozen=True, slots=True)
class Overview:
    """One version. `name` is its name in Triton, which `shared_with` have as well.

    `configuration` is None where nobody tells it. `is_told` says that a Triton told how many
    instances there are. `replicas` may be called for it; none when it is not loaded.
    """

    model: str
    version: int
    name: str
    shared_with: tuple[int, ...]
    replicas: tuple[str, ...]
    reason: str
    configuration: Configuration | None
    revised: Revised
    is_told: bool
    situation: Situation
    advice: tuple[BatchingAdvice, ...]
    hints: tuple[BatchingHint, ...]
    parts: EnsembleSteps | None

    @property
    def config(self) -> str:
        """The configuration as text; empty where there is none."""
        return canonical_text(self.configuration) if self.configuration else ""

    @property
    def window(self) -> CountWindow:
        """What it did in the last minutes."""
        return self.situation.window

    @property
    def service(self) -> ServiceTime | None:
        """The line of its executions."""
        return self.situation.service


class Overviews:
    """Tells of every version.

    `ask` is for what a replica has of a name in Triton, `refresh` has everybody read again.
    """

    def __init__(
        self,
        models: Models,
        fleet: Fleet,
        publisher: Publisher,
        observer: BatchingObserver,
        latencies: Latencies,
        hints: BatchingHints,
        *,
        ask: AskConfiguration,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._models = models
        self._fleet = fleet
        self._publisher = publisher
        self._observer = observer
        self._latencies = latencies
        self._hints = hints
        self._ask = ask
        self._refresh = refresh

    def __repr__(self) -> str:
        return f"<Overviews {self._observer} {self._hints}>"

    async def show(self, model: str, number: int) -> Overview:
        """One version; `UnknownModel`, `UnknownVersion`."""
        self._models.version(model, number)
        await self._refresh()
        status = self._models.version(model, number)
        own = self._models.get(model).model.holding(number)
        name, physical = self._name(model, number, own)
        told = await self._told(status.replicas, name)
        configuration = _in_force(own, told)
        batched = NO_BATCHES if configuration is None else batched_of(configuration)
        if told is not None:
            setup = replace(batched.setup, instances=batched_of(told).setup.instances)
            batched = replace(batched, setup=setup)
        decided = self._revised(model, number, name)
        situation = self._situation(model, number, (name, physical), batched, decided)
        window = situation.window
        parts = None
        if configuration is not None:
            parts = parts_of(configuration, window, self._find, self._observer.window)
        shared = tuple(one for one in (own.versions if own else ()) if one != number)
        return Overview(
            *(model, number, name, shared, status.replicas, status.reason),
            *(configuration, decided, told is not None, situation),
            *(advise(situation), self._hints.of(model, number), parts),
        )

    def judge(self) -> None:
        """Hold what calls do now against what was tuned; once in every round."""
        decisions = self._models.decisions
        situations: dict[tuple[str, int], Situation] = {}
        for model, view in self._publisher.snapshot.models.items():
            objective = decisions.objective(model)
            for number, target in view.targets.items():
                decided = self._revised(model, number, target.physical_name)
                if decided.tuned or objective:
                    slot = (target.physical_name, target.physical_version)
                    situations[model, number] = self._situation(
                        model, number, slot, NO_BATCHES, decided
                    )
        self._hints.judge(situations)

    def _name(self, model: str, number: int, own: Loadable | None) -> tuple[str, int]:
        """The name and version in Triton."""
        view = self._publisher.snapshot.models.get(model)
        target = view.targets.get(number) if view else None
        if target is not None:
            return target.physical_name, target.physical_version
        return (own.name if own else model), number

    def _revised(self, model: str, number: int, name: str) -> Revised:
        decisions = self._models.decisions
        record = decisions.versions.get(model, {}).get(number)
        return revised_of(decisions, name, record.group if record else "")

    def _situation(
        self, model: str, number: int, slot: tuple[str, int], batched: Batched, decided: Revised
    ) -> Situation:
        return Situation(
            asked=f"{model}@{number}",
            batched=batched,
            window=self._observer.window(*slot),
            objective=_objective(self._models.decisions.objective(model)),
            took=self._latencies.of(model, number),
            tuned=decided.tuned,
        )

    async def _told(self, replicas: tuple[str, ...], name: str) -> Configuration | None:
        """What the first replica that answers has under a name."""
        for one in replicas:
            seen = self._fleet.observations.get(one)
            if seen is None or not seen.is_up:
                continue
            try:
                return await self._ask(seen.replica, name)
            except (TritonFailed, Unavailable) as error:
                _log.debug("%s does not return the configuration of %s: %s", one, name, error)
        return None

    def _find(self, name: str, version: int) -> CalledModel | None:
        """What has this name in Triton; -1 is the newest of it that is held."""
        found: CalledModel | None = None
        for model, view in self._publisher.snapshot.models.items():
            for number, target in view.targets.items():
                physical = target.physical_version
                is_meant = version in (physical, NEWEST) and target.physical_name == name
                if is_meant and (found is None or physical > found.version):
                    own = self._models.get(model).model.holding(number)
                    configuration = own.configuration if own else None
                    found = CalledModel(name, physical, f"{model}@{number}", configuration)
        return found


def _in_force(own: Loadable | None, told: Configuration | None) -> Configuration | None:
    """What was decided; what a Triton tells where nobody decides, or each form has its own."""
    if own is None or own.configuration is None or (own.flavours.preferred and told is not None):
        return told
    return own.configuration


def _objective(text: str) -> Objective | None:
    try:
        return Objective.parse(text) if text else None
    except Invalid:
        return None
