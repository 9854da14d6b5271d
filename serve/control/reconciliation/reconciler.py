"""The reconciler: makes every replica hold what is wanted, and keeps looking.

It is level-triggered: each round compares what a replica holds with what it should hold and takes
the steps that lead there (`plan.py`), no matter how the difference came about. So a replica
that was restarted empty, a new version and a load that failed halfway are all one case. A round in
which nothing was left to be done is not repeated before something it has read is another, or half a
minute has passed.

A published version goes through this on every replica, one after the other:

    its files are there → steer calls away → load → warm → run its contract → calls may come

What answers wrongly is barred and loaded anew; what fails is tried again after 10 s, doubled up to
5 min.

Resting: the rounds of one replica that can be left out, because nothing can have changed.

Most rounds find nothing to do, and in a large fleet they would be most of what the control plane
does. A round that has left nothing to do is not repeated

| before                                                         | such as                      |
|----------------------------------------------------------------|------------------------------|
| what it has read is another: what the replica holds, what is   | a version was published, or  |
| wanted of its pool, what is wanted elsewhere or nowhere        | the replica was restarted    |
| something there is barred, or it joins                         | it answers wrongly           |
| somebody asks for it                                           | `load_again`                 |
| half a minute has passed                                       | what nobody has thought of   |

Equal is what is the same object (`control/inventory.py`), so that it takes a moment to see.

Watching: what one replica holds, asked again and again, and what it means when it is another.

Looks: how often replicas are asked what they hold, and how many at one time.

A look costs the control plane a fraction of a millisecond of CPU time, whatever a replica holds. So
a fleet that grows is looked at in turn, and no faster than `PER_SECOND` replicas a second:

    seconds between two looks at one replica = max(tick, replicas / PER_SECOND)

No call waits for a look: the data plane avoids a replica that fails on its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import MappingProxyType

from serve.control.decisions import Decisions
from serve.control.deliveries.delivery import Delivery
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.observations import Held, Observation
from serve.control.reconciliation.agenda import Agenda
from serve.control.reconciliation.busy_replicas import NoSpare, Steering
from serve.control.reconciliation.flavours import Flavouring
from serve.control.reconciliation.loader import Loader
from serve.control.reconciliation.loans import Lending
from serve.control.reconciliation.plan import Load, Step, held_of, removes, takes_time
from serve.control.reconciliation.proofs import Proof, Proving
from serve.control.reconciliation.server_settings import ServerSettings
from serve.control.snapshots import Publisher
from serve.control.versions import PublishedVersion
from serve.core.errors import ServegateError, Unavailable
from serve.core.flavours import UNKNOWN, Machine
from serve.processes.failpoints import reach
from serve.triton.control import IndexEntry, NotExplicit, Settings, TritonControl

# --- looks ----------------------------------------------------------------------------------------


PER_SECOND = 400.0
AT_ONCE = 64  # looks; more would wait for one another's CPU time, and be late
_ROUNDS = 5.0  # seconds: no two rounds at one replica are further apart, for loads are tried again


class Looks:
    """The turns of all keepers. `replicas` gives how many there are; `tick` is seconds."""

    def __init__(self, replicas: Callable[[], int], *, tick: float) -> None:
        self._replicas = replicas
        self._tick = tick
        self.turn = asyncio.Semaphore(AT_ONCE)

    def __repr__(self) -> str:
        return f"<Looks every {self.pause:g} s>"

    @property
    def pause(self) -> float:
        """Seconds between two looks at one replica."""
        return max(self._tick, self._replicas() / PER_SECOND)

    @property
    def rounds(self) -> float:
        """Seconds between two rounds at one replica, unless its keeper is woken."""
        return min(2 * self.pause, max(2 * self._tick, _ROUNDS))


# --- the reconciler -------------------------------------------------------------------------------


_log = logging.getLogger("servegate.reconciler")

# --- watching -------------------------------------------------------------------------------------


class ReplicaWatch:
    """Looks at one replica; the fleet, and who acts there, hear what came of it."""

    def __init__(
        self,
        name: str,
        control: TritonControl,
        *,
        fleet: Fleet,
        inventory: Inventory,
        flavouring: Flavouring,
        loader: Loader,
        settings: ServerSettings,
    ) -> None:
        self._name = name
        self._control = control
        self._fleet = fleet
        self._inventory = inventory
        self._flavouring = flavouring
        self._loader = loader
        self._settings = settings
        self._cannot_list = False
        self._listed: tuple[tuple[IndexEntry, ...], Held] = ((), MappingProxyType({}))

    def __repr__(self) -> str:
        return f"<ReplicaWatch {self._name} holds={len(self._listed[1])}>"

    async def look(self) -> bool:
        """Ask once; whether there is news."""
        try:
            held = self._held(await self._control.index())
            news = self._saw(held)
            pool = self._fleet.observations[self._name].replica.pool
            self._loader.give_up_unwanted(self._inventory.for_pool(pool))
            if self._inventory.is_discovering and await self._inventory.learn(self._control, held):
                news = True
        except Unavailable as error:
            news = self._lost(error.why or str(error))
        except ServegateError as error:  # it answers, but cannot list: what it holds, it holds
            if not self._cannot_list:
                _log.warning("replica %s cannot list its models: %s", self._name, error)
            self._cannot_list = True
            return False
        else:
            self._cannot_list = False
        return news

    def _held(self, listed: tuple[IndexEntry, ...]) -> Held:
        """What is listed as ready; the same list, which is the same object, is read once."""
        if listed is not self._listed[0]:
            self._listed = listed, held_of(listed)
            self._loader.loading = frozenset(one.model for one in listed if one.state == "LOADING")
        return self._listed[1]

    def _saw(self, held: Held) -> bool:
        news = self._fleet.saw(self._name, held)
        self._flavouring.back(held)
        if news and not held:  # it has just started, or lost everything
            self._fleet.joining.add(self._name)
            self._settings.forget()
        return news

    def _lost(self, why: str) -> bool:
        news = self._fleet.lost(self._name, why)
        self._settings.forget()  # it may come back as another process
        self._flavouring.lost()
        self._loader.give_up_hung()
        self._loader.lost()
        if news:
            _log.warning("replica %s is lost: %s", self._name, why)
        return news


# --- resting --------------------------------------------------------------------------------------


REPEATED = 30.0  # seconds


class Resting:
    """Of one replica. `clock`: monotonic seconds."""

    def __init__(
        self, name: str, fleet: Fleet, inventory: Inventory, *, clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._fleet = fleet
        self._inventory = inventory
        self._clock = clock
        self._read: tuple[object, ...] = ()  # by the round that left nothing to do
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<Resting {self._name} {'yes' if self._read else 'no'}>"

    def holds(self, seen: Observation) -> bool:
        """Whether a round would find what the last one has left: nothing to do."""
        if not self._read or self._clock() >= self._until:
            return False
        if self._name in self._fleet.joining or self._fleet.barred.has_any(self._name):
            return False
        now = self._reads(seen)
        return all(one is other for one, other in zip(now, self._read, strict=True))

    def begin(self) -> None:
        """Nothing is left to do, as far as steps and files go."""
        seen = self._fleet.observations[self._name]
        pool, failures = seen.replica.pool, self._fleet.failures
        wanted = self._inventory.for_pool(pool)
        leaves = seen.held.keys() & self._inventory.elsewhere(pool)
        if not leaves and not any((self._name, name) in failures for name in wanted):
            self._read, self._until = self._reads(seen), self._clock() + REPEATED

    def end(self) -> None:
        """The next round is taken."""
        self._read = ()

    def _reads(self, seen: Observation) -> tuple[object, ...]:
        inventory, pool = self._inventory, seen.replica.pool
        return (
            seen,
            inventory.for_pool(pool),
            inventory.removed,
            inventory.elsewhere(pool),
            inventory.server_settings,
        )


# --- the reconciler -------------------------------------------------------------------------------


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
