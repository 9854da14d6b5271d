"""The reconciler: makes every replica hold what is wanted, and keeps looking.

It is level-triggered: each round compares what a replica holds with what it should hold and takes
the steps that lead there (`planning.py`), no matter how the difference came about. So a replica
that was restarted empty, a new version and a load that failed halfway are all one case.

A published version goes through this on every replica, one after the other:

    its files are there → steer calls away → load → warm → run its contract → calls may come

What answers wrongly is barred and loaded anew; what fails is tried again after 10 s, doubled up to
5 min.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from serve.control.decisions import Decisions
from serve.control.delivering.delivery import Delivery
from serve.control.fleet import Failure, Fleet, Held
from serve.control.inventory import Inventory
from serve.control.reconciling.planning import (
    Load,
    Step,
    Unload,
    delivered,
    held_of,
    plan,
    removes,
    takes_time,
)
from serve.control.reconciling.proving import Proof, Proving
from serve.control.reconciling.steering import STEER_TIMEOUT, NoSpare, Steering
from serve.control.registry import Loadable
from serve.control.snapshots import Publisher
from serve.control.storing.store import Key
from serve.control.versions import Version
from serve.core.errors import ServegateError, Unavailable
from serve.processes.failpoints import reach
from serve.triton.control import NotExplicit, Settings, TritonControl

_log = logging.getLogger("servegate.reconciler")
FIRST_RETRY, LAST_RETRY = 10.0, 300.0  # seconds


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
        steering: Steering,
        delivery: Delivery,
        proof: Proof,
        decisions: Callable[[], Decisions],
        clock: Callable[[], float],
        tick: float,
    ) -> None:
        self._name = name
        self._control = control
        self._fleet = fleet
        self._inventory = inventory
        self._publisher = publisher
        self._steering = steering
        self._delivery = delivery
        self._proving = Proving(name, fleet, publisher, proof=proof, decisions=decisions)
        self._decisions = decisions
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
        """Whether the replica takes load calls, and this name in Triton belongs on it."""
        seen = self._fleet.observations[self._name]
        return not seen.self_managed and model in self._inventory.for_pool(seen.replica.pool)

    def holds(self, model: str) -> bool:
        """Whether a version under this name was ready when the replica was last looked at."""
        return bool(self._fleet.observations[self._name].held.get(model))

    def load_again(self, model: str) -> None:
        """Load a name in Triton at once, as it should be or not; `is_settled` once it was tried."""
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

    async def found(self, version: Version, why: str) -> None:
        """Somebody has run a contract here; see `Proving.found`."""
        if await self._proving.found(version, why):
            self.wake()

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
        self._trying |= self._again
        self._again.clear()
        steps = self._steps()
        self._trying &= {step.model.name for step in steps if isinstance(step, Load)}
        await self._forget_failures(steps)
        try:
            if any(takes_time(step) and self._is_due(step) for step in steps):
                async with self._steering.away(self._name):
                    self._fleet.waiting.pop(self._name, None)
                    reach("load.steered")
                    await self._take_all(takes_time)  # what is wanted may have changed meanwhile
            await self._take_all(lambda step: not takes_time(step))
        except NotExplicit as error:
            _log.warning("%s: it serves what it holds", error)
            self._fleet.manages_itself(self._name)
        except NoSpare as error:
            self._fleet.waiting[self._name] = str(error)
        except Unavailable:
            pass  # the watch will say so

    def _steps(self) -> list[Step]:
        seen = self._fleet.observations[self._name]
        models = self._delivered(self._inventory.for_pool(seen.replica.pool))
        self._adopt(models, seen.held)
        removed, wrong = self._inventory.removed, self._fleet.wrong(self._name)
        return plan(models, seen.held, self._applied, removed, self._trying, wrong)

    def _delivered(self, models: Mapping[str, Loadable]) -> Mapping[str, Loadable]:
        """What of it can be loaded here and now."""
        held = self._fleet.observations[self._name].held
        there = {
            one.name: [
                number
                for number in one.wanted
                if number in held.get(one.name, ())
                or self._delivery.has(self._name, self._version(one, number))
            ]
            for one in models.values()
            if one.published
        }
        return delivered(models, there)

    def _version(self, one: Loadable, number: int) -> Version:
        return self._decisions().versions[one.model][number]

    async def _take_all(self, kind: Callable[[Step], bool]) -> None:
        for step in self._steps():
            if not kind(step) or not self._is_due(step):
                continue
            if removes(step) and not self._fleet.is_known:
                continue  # another replica may be the only one that workers know of
            await self._take(step)
            await self.observe()
            if isinstance(step, Load):
                for number, why in (await self._proving.prove(step.model)).items():
                    self._failed(step, f"version {number} answers wrongly: {why}")
                await self._publisher.refresh()
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
        if removes(step):
            generation = await self._publisher.refresh()
            if not await self._publisher.in_force(generation, STEER_TIMEOUT):
                return  # some worker may still send calls there
        if isinstance(step, Unload):
            await self._control.unload(step.name)
            self._applied.pop(step.name, None)
            return
        name, configuration = step.model.name, step.model.configuration
        if step.model.published:
            self._proving.begin(step)
        try:
            if step.wrong:
                await self._drop_wrong(step)
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
        reach("load.done")
        if self._fleet.failures.pop((self._name, name), None) is not None:
            await self._publisher.refresh()
        if configuration is not None:
            self._applied[name] = configuration.digest
        _log.info("replica %s loaded %s %s", self._name, name, list(step.versions) or "")

    async def _drop_wrong(self, step: Load) -> None:
        """Triton leaves alone what it has loaded, so what answers wrongly has to go first."""
        configuration = step.model.configuration
        kept = set(step.versions) - set(step.wrong)
        if configuration is None or not kept:
            await self._control.unload(step.model.name)
        else:
            await self._control.load(step.model.name, configuration.for_load(kept))

    def _adopt(self, models: Mapping[str, Loadable], held: Held) -> None:
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

    def _is_due(self, step: Step) -> bool:
        if isinstance(step, Unload):
            return True
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
