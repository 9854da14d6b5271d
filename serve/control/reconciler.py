"""The reconciler: makes every replica hold what is wanted, and keeps looking.

It is level-triggered: each round compares what a replica holds with what it should hold and takes
the steps that lead there, no matter how the difference came about. So a replica that was restarted
empty, a new version folder and a load that failed halfway are all the same case.

| seen on the replica                        | step                                             |
|--------------------------------------------|--------------------------------------------------|
| a wanted version is not ready              | load exactly the wanted versions                 |
| the configuration on disk has changed      | load exactly the wanted versions                 |
| a version is ready that is not wanted      | once no worker routes to it: the same load call   |
| a model is ready whose folder has gone     | once no worker routes to it: unload              |
| the last load of the same thing has failed | wait: 10 s, doubled up to 5 min                  |
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from serve.control.fleet import Failure, Fleet, Held
from serve.control.inventory import Inventory
from serve.control.registry import Model
from serve.control.snapshots import Publisher
from serve.control.store import Key
from serve.core.errors import ServegateError, Unavailable
from serve.triton.control import Entry, NotExplicit, Settings, TritonControl

_log = logging.getLogger("servegate.reconciler")
FIRST_RETRY, LAST_RETRY = 10.0, 300.0  # seconds
STEER_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """Load exactly these versions. `removes`: some that are ready now will go."""

    model: Model
    versions: tuple[int, ...]
    removes: bool

    @property
    def about(self) -> tuple[object, ...]:
        """What a failure of this step is about: the same again would fail again."""
        configuration = self.model.configuration
        return self.versions, configuration and configuration.digest, self.model.fingerprint


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload a model whose folder has gone."""

    name: str


Step = Load | Unload


def _removes(step: Step) -> bool:
    """Whether something that is ready now will go."""
    return isinstance(step, Unload) or step.removes


def plan(
    models: Mapping[str, Model],
    held: Held,
    applied: Mapping[str, str],
    removed: frozenset[str],
    again: Collection[str] = (),
) -> list[Step]:
    """The steps that lead one replica from what it holds to what is wanted, in their order.

    `applied` are the digests of the configurations that are loaded here; a model that is not in it
    is taken as it is. Models in `again` are loaded even if they are as they should be.
    """
    steps: list[Step] = []
    for model in _parts_first(models):
        ready = held.get(model.name, ())
        if model.problem:
            continue
        if model.configuration is None:
            if not ready or model.name in again:
                steps.append(Load(model, (), removes=False))
            continue
        digest = model.configuration.digest
        stale = applied.get(model.name, digest) != digest or model.name in again
        if stale or set(ready) != set(model.wanted):
            removes = not set(ready) <= set(model.wanted)
            steps.append(Load(model, model.wanted, removes))
    steps.extend(Unload(name) for name in sorted(removed) if held.get(name))
    return steps


def _parts_first(models: Mapping[str, Model]) -> Sequence[Model]:
    """The models in an order in which an ensemble follows the models it is made of."""
    order: dict[str, Model] = {}
    visiting: set[str] = set()

    def visit(name: str) -> None:
        model = models.get(name)
        if model is None or name in order or name in visiting:
            return
        visiting.add(name)
        for part in model.composing_models:
            visit(part)
        order[name] = model

    for name in sorted(models):
        visit(name)
    return list(order.values())


def held_of(index: Sequence[Entry]) -> Held:
    """The ready versions of a repository index."""
    ready: dict[str, list[int]] = {}
    for entry in index:
        if entry.state == "READY":
            ready.setdefault(entry.model, []).append(entry.version)
    return MappingProxyType({name: tuple(sorted(v)) for name, v in ready.items()})


class ReplicaKeeper:
    """Watches one replica and loads what it lacks: two tasks, because a load may take minutes."""

    def __init__(
        self,
        name: str,
        control: TritonControl,
        *,
        fleet: Fleet,
        inventory: Inventory,
        publisher: Publisher,
        clock: Callable[[], float],
        tick: float,
    ) -> None:
        self._name = name
        self._control = control
        self._fleet = fleet
        self._inventory = inventory
        self._publisher = publisher
        self._clock = clock
        self._tick = tick
        self._applied: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._cannot_list = False
        self._again: set[str] = set()  # models that are to be loaded anew, from the next round on
        self._trying: set[str] = set()  # those of the present round
        self._set: dict[Key, Settings] = {}  # trace and log settings that were made here
        self.on_round: Callable[[], None] = lambda: None  # called after each round

    def __repr__(self) -> str:
        return f"<ReplicaKeeper {self._name} applied={sorted(self._applied)}>"

    @property
    def name(self) -> str:
        """The replica's."""
        return self._name

    def serves(self, model: str) -> bool:
        """Whether the replica takes load calls, and this model belongs on it."""
        seen = self._fleet.observations[self._name]
        return not seen.self_managed and model in self._inventory.for_pool(seen.replica.pool)

    def holds(self, model: str) -> bool:
        """Whether a version of the model was ready when the replica was last looked at."""
        return bool(self._fleet.observations[self._name].held.get(model))

    def load_again(self, model: str) -> None:
        """Load a model at once, even if it is as it should be; `is_settled` once that was tried."""
        self._fleet.failures.pop((self._name, model), None)
        self._again.add(model)
        self.wake()

    def is_settled(self, model: str) -> bool:
        """Whether nothing that `load_again` asked for is left to be tried."""
        return model not in self._again and model not in self._trying

    @property
    def has_settings(self) -> bool:
        """Whether the trace and log settings that were decided are in force here."""
        return self._set == self._inventory.server_settings

    async def settings(self, kind: str, model: str, changes: Settings) -> Settings:
        """Change trace or log settings here, now; gives all of them."""
        return await self._control.settings(kind, model, changes)

    def wake(self) -> None:
        """Something that is wanted has changed: look at once."""
        self._wake.set()

    async def run(self) -> None:
        """Keep the replica as it should be until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._keep())
        finally:
            await self._control.close()

    async def observe(self) -> None:
        """Look once, and publish what changed."""
        try:
            held = held_of(await self._control.index())
            news = self._fleet.saw(self._name, held)
            if self._inventory.is_discovering and await self._inventory.learn(self._control, held):
                news = True
        except Unavailable as error:
            news = self._fleet.lost(self._name, error.why or str(error))
            self._set.clear()  # it may come back as another process
            if news:
                _log.warning("replica %s is lost: %s", self._name, error.why or error)
        except ServegateError as error:  # it answers, but cannot list: what it holds, it holds
            news = False
            if not self._cannot_list:
                _log.warning("replica %s cannot list its models: %s", self._name, error)
            self._cannot_list = True
        else:
            self._cannot_list = False
        if news:
            await self._publisher.refresh()
            self._wake.set()

    async def _watch(self) -> None:
        while True:
            await self.observe()
            await asyncio.sleep(self._tick)

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tick * 2):  # not wait_for, which may lose a cancel
                    await self._wake.wait()
            self._wake.clear()
            await self.reconcile()
            self.on_round()

    async def reconcile(self) -> None:
        """Take the steps of one round; one that fails does not keep the others from being taken."""
        seen = self._fleet.observations[self._name]
        if seen.is_up and not self.has_settings:
            await self._apply_settings()
        if not seen.is_up or seen.self_managed or self._inventory.is_discovering:
            return
        models = self._inventory.for_pool(seen.replica.pool)
        self._adopt(models, seen.held)
        self._trying |= self._again
        self._again.clear()
        steps = plan(models, seen.held, self._applied, self._inventory.removed, self._trying)
        self._trying &= {step.model.name for step in steps if isinstance(step, Load)}
        await self._forget_failures(steps)
        for step in steps:
            if isinstance(step, Load) and not self._is_due(step):
                continue
            if _removes(step) and not self._fleet.is_known:
                continue  # another replica may be the only one that workers know of
            try:
                await self._take(step)
            except NotExplicit as error:
                _log.warning("%s: it serves what it holds", error)
                self._fleet.manages_itself(self._name)
                return
            except Unavailable:
                return  # the watch will say so
            await self.observe()
            if isinstance(step, Load):
                self._trying.discard(step.model.name)

    async def _apply_settings(self) -> None:
        for key, wanted in self._inventory.server_settings.items():
            if self._set.get(key) != wanted:
                try:
                    await self._control.settings(*key, wanted)
                except Unavailable:
                    return  # the watch will say so
                except ServegateError as error:
                    _log.warning("replica %s refuses %s settings: %s", self._name, key[0], error)
                self._set[key] = wanted

    async def _take(self, step: Step) -> None:
        if _removes(step):
            generation = await self._publisher.refresh()
            if not await self._publisher.in_force(generation, STEER_TIMEOUT):
                return  # some worker may still send calls there
        if isinstance(step, Unload):
            await self._control.unload(step.name)
            self._applied.pop(step.name, None)
            return
        name, configuration = step.model.name, step.model.configuration
        try:
            await self._control.load(
                name, configuration.for_load(step.versions) if configuration else None
            )
        except (NotExplicit, Unavailable):
            raise
        except Exception as error:  # whatever it is, it is this model's problem and no other's
            if not isinstance(error, ServegateError):
                _log.exception("replica %s cannot load %s", self._name, name)
            self._failed(step, str(error))
            await self._publisher.refresh()
            return
        if self._fleet.failures.pop((self._name, name), None) is not None:
            await self._publisher.refresh()
        if configuration is not None:
            self._applied[name] = configuration.digest
        _log.info("replica %s loaded %s %s", self._name, name, list(step.versions) or "")

    def _adopt(self, models: Mapping[str, Model], held: Held) -> None:
        """What is ready already is taken to have the present configuration; later edits count."""
        for name, model in models.items():
            if model.configuration is not None and held.get(name):
                self._applied.setdefault(name, model.configuration.digest)

    async def _forget_failures(self, steps: list[Step]) -> None:
        """What is no longer to be loaded here has not failed here, either."""
        loading = {step.model.name for step in steps if isinstance(step, Load)}
        settled = [
            key for key in self._fleet.failures if key[0] == self._name and key[1] not in loading
        ]
        for key in settled:
            del self._fleet.failures[key]
        if settled:
            await self._publisher.refresh()

    def _is_due(self, step: Load) -> bool:
        failure = self._fleet.failures.get((self._name, step.model.name))
        return failure is None or failure.about != step.about or self._clock() >= failure.retry_at

    def _failed(self, step: Load, reason: str) -> None:
        key = (self._name, step.model.name)
        before = self._fleet.failures.get(key)
        tries = before.tries + 1 if before and before.about == step.about else 1
        pause = min(FIRST_RETRY * 2 ** min(tries - 1, 16), LAST_RETRY)
        self._fleet.failures[key] = Failure(reason, step.about, tries, self._clock() + pause)
        if tries == 1:
            _log.warning("replica %s cannot load %s: %s", self._name, step.model.name, reason)
