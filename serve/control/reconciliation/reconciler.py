"""The reconciler: makes every replica hold what is wanted, and keeps looking.

It is level-triggered: each round compares what a replica holds with what it should hold and takes
the steps that lead there (`planning.py`), no matter how the difference came about. So a replica
that was restarted empty, a new version and a load that failed halfway are all one case. A round in
which nothing was left to be done is not repeated before something it has read is another, or half a
minute has passed.

A published version goes through this on every replica, one after the other:

    its files are there → steer calls away → load → warm → run its contract → calls may come

What answers wrongly is barred and loaded anew; what fails is tried again after 10 s, doubled up to
5 min.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from serve.control.decisions import Decisions
from serve.control.deliveries.delivery import Delivery
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.reconciliation.agenda import Agenda
from serve.control.reconciliation.busy_replicas import NoSpare, Steering
from serve.control.reconciliation.flavours import Flavouring
from serve.control.reconciliation.idle_rounds import Resting
from serve.control.reconciliation.loader import Loader
from serve.control.reconciliation.loans import Lending
from serve.control.reconciliation.looks import Looks
from serve.control.reconciliation.plan import Load, Step, removes, takes_time
from serve.control.reconciliation.proofs import Proof, Proving
from serve.control.reconciliation.server_settings import ServerSettings
from serve.control.reconciliation.watch import ReplicaWatch
from serve.control.snapshots import Publisher
from serve.control.versions import PublishedVersion
from serve.core.errors import Unavailable
from serve.core.flavours import UNKNOWN, Machine
from serve.processes.failpoints import reach
from serve.triton.control import NotExplicit, Settings, TritonControl

_log = logging.getLogger("servegate.reconciler")


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
        looks: Looks,
        machine: Machine = UNKNOWN,
    ) -> None:
        self._name = name
        self._control = control
        self._fleet = fleet
        self._inventory = inventory
        self._publisher = publisher
        self._steering = steering
        self._proving = Proving(name, fleet, publisher, proof=proof, decisions=decisions)
        self._flavouring = Flavouring(name, machine, fleet, changed=self._try_next)
        self._loader = Loader(
            name,
            control,
            fleet=fleet,
            publisher=publisher,
            proving=self._proving,
            flavouring=self._flavouring,
            clock=clock,
        )
        self._agenda = Agenda(
            name,
            fleet=fleet,
            inventory=inventory,
            delivery=delivery,
            loader=self._loader,
            flavouring=self._flavouring,
            decisions=decisions,
        )
        self.lending = Lending(
            name, fleet=fleet, steering=steering, doubts=self._loader, put_back=self._put_back
        )
        self._settings = ServerSettings(name, control, wanted=lambda: inventory.server_settings)
        self._watching = ReplicaWatch(
            name,
            control,
            fleet=fleet,
            inventory=inventory,
            flavouring=self._flavouring,
            loader=self._loader,
            settings=self._settings,
        )
        self._looks = looks
        self._wake = asyncio.Event()
        self._resting = Resting(name, fleet, inventory, clock=clock)
        self._again: set[str] = set()  # models that are to be loaded anew, from the next round on
        self._trying: set[str] = set()  # those of the present round
        self.rounds = 0  # that have ended
        self._heard: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<ReplicaKeeper {self._name} {self._loader!r}>"

    @property
    def name(self) -> str:
        """The replica's."""
        return self._name

    def after_rounds(self, tell: Callable[[], None]) -> None:
        """Call this after each round, too."""
        self._heard.append(tell)

    def serves(self, model: str) -> bool:
        """Whether the replica takes load calls, and this name in Triton belongs on it."""
        seen = self._fleet.observations[self._name]
        able = not seen.self_managed and self._fleet.can_hold(self._name, model)
        return able and model in self._inventory.for_pool(seen.replica.pool)

    def holds(self, model: str) -> bool:
        """Whether a version under this name was ready when the replica was last looked at."""
        return bool(self._fleet.observations[self._name].held.get(model))

    def load_again(self, model: str) -> None:
        """Load a name in Triton at once, as it should be or not; `is_settled` once it was tried."""
        self._fleet.failures.pop((self._name, model), None)
        self._flavouring.forget(model)
        self._try_next(model)

    def _try_next(self, model: str) -> None:
        self._again.add(model)
        self.wake()

    def is_settled(self, model: str) -> bool:
        """Whether nothing that `load_again` asked for is left to be tried."""
        return model not in self._again and model not in self._trying

    def is_as_wanted(self, model: str) -> bool:
        """Whether what is under a name in Triton is loaded here as it should be, and proven."""
        return self._agenda.has_nothing_for(model) and model not in self._unproven

    def problem(self, model: str) -> str:
        """Why a name in Triton is not loaded here as it should be; empty while nothing is known."""
        failure = self._fleet.failures.get((self._name, model))
        return failure.reason if failure else self._agenda.undelivered(model)

    @property
    def has_settings(self) -> bool:
        """Whether the trace and log settings that were decided are in force here."""
        return self._settings.are_set

    async def settings(self, kind: str, model: str, changes: Settings) -> Settings:
        """Change trace or log settings here, now; gives all of them."""
        return await self._control.settings(kind, model, changes)

    def wake(self) -> None:
        """Something has changed: look at once."""
        self._resting.end()
        self._wake.set()

    def nudge(self) -> None:
        """What is wanted may have changed: look at once whether it has."""
        self._wake.set()

    async def found(self, version: PublishedVersion, why: str) -> None:
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
        await self._tell(await self._watching.look())

    async def _tell(self, news: bool) -> None:
        if news:
            await self._publisher.refresh()
            self._wake.set()

    async def _watch(self) -> None:
        while True:
            async with self._looks.turn:
                news = await self._watching.look()
            await self._tell(news)
            await asyncio.sleep(self._looks.pause)

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                pause = self._looks.rounds
                async with asyncio.timeout(pause):  # not wait_for, which may lose a cancel
                    await self._wake.wait()
            self._wake.clear()
            async with self.lending.turn:
                await self.reconcile()
            self.rounds += 1
            for tell in self._heard:
                tell()

    async def reconcile(self) -> None:
        """Take the steps of one round; one that fails does not keep the others from being taken."""
        seen = self._fleet.observations[self._name]
        if not seen.is_up or self._fleet.is_retired(self._name) or self._resting.holds(seen):
            return
        self._resting.end()
        if not self.has_settings:
            await self._settings.apply()
        if seen.self_managed or self._inventory.is_discovering:
            await self._join()
            return
        if not seen.held and self._agenda.awaited:  # its agent may have come after it
            self._fleet.joining.add(self._name)
        await self._loader.recognise(self._inventory.for_pool(seen.replica.pool), seen.held)
        self._trying |= self._again
        self._again.clear()
        steps = self._agenda.steps(self._trying)
        loads = {step.model.name for step in steps if isinstance(step, Load)}
        self._trying &= loads | self._agenda.awaited
        await self._loader.forget_failures(steps)
        try:
            await self._take_all(lambda step: not takes_time(step))
            why = await self._load_all()
            why = await self._prove_rest() or why
        except NotExplicit as error:
            _log.warning("%s; the replica serves the models that it has loaded", error)
            self._fleet.manages_itself(self._name)
        except Unavailable:
            pass  # the watch will say so
        else:
            self._tell_waiting(why)
            if why or not (self._agenda.has_loads() or self._agenda.awaited):
                await self._join()
            if self._is_done:
                self._resting.begin()

    @property
    def _is_done(self) -> bool:
        """Whether nothing is left that a round could do, now or later."""
        left = self._again or self._trying or self._proving.called or self._agenda.steps()
        return self.has_settings and not left and not self._agenda.lacks_files

    async def _load_all(self) -> str:
        """Take the steps that take time, away from calls; why that may not be done now."""
        if not self._agenda.has_loads(self._trying):
            return ""
        try:
            async with self._steering.away(self._name):
                reach("load.steered")
                await self._take_all(takes_time)  # what is wanted may have changed meanwhile
        except NoSpare as error:
            return str(error)
        return ""

    async def _prove_rest(self) -> str:
        """Prove what could not be proven when it was loaded; why it cannot be now, either."""
        told = ""
        if not self._unproven:
            return told
        wanted = self._inventory.for_pool(self._fleet.observations[self._name].replica.pool)
        for name in sorted(self._unproven):
            one = self._inventory.loadables.get(name)
            self._proving.forget(name, wanted[name].wanted if name in wanted else ())
            try:
                if await self._proving.prove(name, one.model if one else ""):
                    self.wake()  # it has to be loaded anew
                elif one is not None:
                    self._fleet.found_good(self._name, name, one.revision)
            except Unavailable as error:
                told = f"it is loaded, but cannot be checked on replica {self._name}: {error}"
        await self._publisher.refresh()
        return told

    async def _put_back(self, model: str) -> None:
        """Somebody has loaded something else here: load what should be, while no calls come."""
        if self._fleet.is_retired(self._name):
            return  # nobody will call it again
        self._trying.add(model)
        with contextlib.suppress(NotExplicit, Unavailable):
            await self._take_all(takes_time)
        self.wake()

    @property
    def _unproven(self) -> frozenset[str]:
        return self._fleet.unproven(self._name) | self._proving.called

    def _tell_waiting(self, why: str) -> None:
        if why:
            self._fleet.waiting[self._name] = why
        else:
            self._fleet.waiting.pop(self._name, None)

    async def _join(self) -> None:
        """It has all that it can have by now, so calls may come."""
        if self._name in self._fleet.joining:
            self._fleet.joining.discard(self._name)
            await self._publisher.refresh()

    async def _take_all(self, kind: Callable[[Step], bool]) -> None:
        for step in self._agenda.steps(self._trying):
            if not kind(step) or not self._loader.is_due(step):
                continue
            if removes(step) and not self._fleet.is_known:
                continue  # another replica may be the only one that workers know of
            is_done = await self._take(step)
            if isinstance(step, Load):
                if is_done:
                    await self._prove(step)
                await self._publisher.refresh()
                self._trying.discard(step.model.name)

    async def _take(self, step: Step) -> bool:
        try:
            is_done = await self._loader.take(step)
            news = await self._watching.look()
        finally:
            if self._fleet.left(self._name):
                await self._publisher.refresh()
        if not isinstance(step, Load):  # of that more is said once it is proven
            await self._tell(news)
        return is_done

    async def _prove(self, step: Load) -> None:
        try:
            wrong = await self._proving.prove(step.model.name, step.model.model)
        except Unavailable as error:  # no reason not to load the others
            _log.info("replica %s cannot check %s yet: %s", self._name, step.model.name, error)
            return
        if not wrong:
            self._loader.succeeded(step.model)
        for number, why in wrong.items():
            self._loader.failed(step, f"version {number} returns wrong outputs: {why}")
