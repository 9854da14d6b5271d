"""The loader: takes single steps on one replica, and remembers which have failed.

A load may take minutes, or hang. Whoever waits for it keeps this replica's other models waiting,
and the other replicas of the pool; so nobody waits for ever. Triton goes on with what it has begun:
what is ready in the end is proven like everything else.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from serve.control.fleet import Fleet
from serve.control.observations import Held, LoadFailure
from serve.control.reconciliation.busy_replicas import STEER_TIMEOUT
from serve.control.reconciliation.flavours import Flavouring
from serve.control.reconciliation.plan import Load, Step, Unload, removes
from serve.control.reconciliation.proofs import Proving
from serve.control.registry import Loadable
from serve.control.snapshots import Publisher
from serve.core.errors import ServegateError, TritonFailed, Unavailable
from serve.processes.failpoints import reach
from serve.triton.config import Configuration, of_message
from serve.triton.config_revisions import is_in_force
from serve.triton.control import NotExplicit, TritonControl

_log = logging.getLogger("servegate.loader")
FIRST_RETRY, LAST_RETRY = 10.0, 300.0  # seconds
LOAD_PATIENCE = 600.0  # seconds
HUNG = 15.0  # seconds without an answer after which nobody waits for a load to end


class Loader:
    """Loads and unloads on one replica. What fails is tried again after a while."""

    def __init__(
        self,
        name: str,
        control: TritonControl,
        *,
        fleet: Fleet,
        publisher: Publisher,
        proving: Proving,
        flavouring: Flavouring,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._control = control
        self._fleet = fleet
        self._publisher = publisher
        self._proving = proving
        self._flavouring = flavouring
        self._clock = clock
        self._patience: asyncio.Timeout | None = None  # of the load that is waited for
        self._awaited: Load | None = None  # the same load
        self._refused: dict[str, str] = {}  # why a name in Triton was not unloaded
        self._revised: set[str] = set()  # names whose configuration somebody has changed
        self.applied: dict[str, str] = {}  # digests of the configurations that are loaded, by name
        self.loading: frozenset[str] = frozenset()  # names, as Triton says

    def __repr__(self) -> str:
        return f"<Loader {self._name} applied={sorted(self.applied)}>"

    async def take(self, step: Step) -> bool:
        """Take one step; whether it was taken, and Triton has not refused it.

        `Unavailable`: the replica is lost. `NotExplicit`: it takes no load calls.
        """
        if removes(step):
            generation = await self._publisher.refresh()
            if not await self._publisher.in_force(generation, STEER_TIMEOUT):
                return False  # some worker may still send calls there
            if not self._let_go(step):
                return False
        if isinstance(step, Unload):
            return await self._unload(step.name)
        name, configuration = step.model.name, step.model.configuration
        if step.model.published:
            self._proving.begin(step)
        if self._only_revises(step):
            self._fleet.tries(self._name, name, step.model.revision)
        try:
            if step.wrong:
                await self._drop_wrong(step)
            if not await self._load(step):
                return False
        except (NotExplicit, Unavailable):
            raise
        except Exception as error:  # whatever it is, it is this model's problem and no other's
            if not isinstance(error, ServegateError):
                _log.exception("replica %s cannot load %s", self._name, name)
            self.failed(step, str(error))
            await self._publisher.refresh()
            return False
        reach("load.done")
        if configuration is not None:
            if step.model.published and self.applied.get(name) != configuration.digest:
                self._proving.begin(step, anew=True)
            self._applied(step.model)
        in_form = f" as {step.model.flavour}" if step.model.flavour else ""
        versions = list(step.versions) or ""
        _log.info("replica %s loaded %s %s%s", self._name, name, versions, in_form)
        return True

    def _let_go(self, step: Step) -> bool:
        """No calls come for what goes, until it has gone; False if some do.

        A version that was retired may be wanted again by now, and the pool that a model has moved
        to may have lost it.
        """
        name, stay = step.name, () if isinstance(step, Unload) else step.versions
        held = self._fleet.observations[self._name].held.get(name, ())
        going = [version for version in held if version not in stay]
        if self.is_called(name, going):
            return False
        self._fleet.leave(self._name, name, going)
        return True

    def _applied(self, model: Loadable) -> None:
        """This is what is loaded now."""
        if model.configuration is not None:
            self.applied[model.name] = model.configuration.digest
            if model.revision:
                self._revised.add(model.name)
            self._fleet.flavours[self._name, model.name] = model.flavour

    async def _unload(self, name: str) -> bool:
        try:
            await self._control.unload(name)
        except (NotExplicit, Unavailable):
            raise
        except ServegateError as error:  # it is asked again in the next round
            if self._refused.get(name) != str(error):
                _log.warning("replica %s cannot unload %s: %s", self._name, name, error)
            self._refused[name] = str(error)
            return False
        self._refused.pop(name, None)
        self.applied.pop(name, None)
        self._fleet.flavours.pop((self._name, name), None)
        return True

    async def _load(self, step: Load) -> bool:
        """Wait for Triton to load it, unless the replica hangs, or it takes long.

        False when one of its versions is not wanted any more: a load that begins while its files
        are being removed may hang in Triton for ever. That is no failure of the other versions.
        """
        configuration = step.model.configuration
        config = configuration.for_load(step.versions) if configuration else None
        begun = self._clock()
        try:
            async with asyncio.timeout(LOAD_PATIENCE) as self._patience:
                self._awaited = step
                await self._control.load(step.name, config)
        except TimeoutError:
            if self._awaited is None:
                _log.info("replica %s: %s is not waited for any more", self._name, step.name)
                return False
            if not self._fleet.observations[self._name].is_up:
                raise Unavailable(f"replica {self._name} does not respond") from None
            raise TritonFailed(f"it is still loading after {self._clock() - begun:.0f} s") from None
        finally:
            self._patience = self._awaited = None
        return True

    async def _drop_wrong(self, step: Load) -> None:
        """Triton leaves alone what it has loaded, so what answers wrongly has to go first."""
        configuration = step.model.configuration
        kept = set(step.versions) - set(step.wrong)
        if configuration is None or not kept:
            await self._control.unload(step.model.name)
        else:
            await self._control.load(step.model.name, configuration.for_load(kept))

    def give_up_hung(self) -> None:
        """A replica that is lost for long ends no load: whoever waits for it keeps others up."""
        if self._clock() - self._fleet.observations[self._name].since > HUNG:
            self._give_up()

    def give_up_unwanted(self, wanted: Mapping[str, Loadable]) -> None:
        """Nobody waits for a version that was removed in the meantime."""
        if self._awaited is not None:
            now = wanted.get(self._awaited.name)
            if now is None or not set(self._awaited.versions) <= set(now.wanted):
                self._awaited = None
                self._give_up()

    def _give_up(self) -> None:
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    def is_called(self, name: str, versions: Collection[int] | None = None) -> bool:
        """Whether calls for these (any) versions of a name in Triton may come to this replica."""
        return any(
            target.physical_name == name
            and self._name in target.replicas
            and (versions is None or target.physical_version in versions)
            for view in self._publisher.snapshot.models.values()
            for target in view.targets.values()
        )

    def doubt(self, name: str) -> None:
        """Nobody knows how it is configured here: it is loaded again."""
        self.applied[name] = ""  # no digest

    def is_doubted(self, name: str) -> bool:
        """Whether it has not been loaded since `doubt`."""
        return self.applied.get(name) == ""

    def adopt(self, models: Mapping[str, Loadable], held: Held) -> None:
        """What is ready already is taken to have the present configuration; later edits count.

        Not so where somebody has changed the configuration: `recognise` asks about that.
        """
        for name, model in models.items():
            if model.configuration is not None and held.get(name) and not model.revision:
                self.applied.setdefault(name, model.configuration.digest)

    async def recognise(self, models: Mapping[str, Loadable], held: Held) -> None:
        """Ask which flavours, and which changes, an earlier control plane has loaded here."""
        for name, model in models.items():
            known = name in self.applied or not (model.flavours.preferred or model.revision)
            if known or model.configuration is None or not held.get(name):
                continue
            try:
                found = of_message(await self._control.config(name))
            except ServegateError as error:
                _log.warning(
                    "replica %s does not return the configuration of %s: %s",
                    self._name,
                    name,
                    error,
                )
            else:
                own = self._flavouring.recognise(model, found)
                self._applied(own)
                if model.revision and not _runs(own, found):
                    self.doubt(name)

    def lost(self) -> None:
        """The replica may come back as a process that has read its configurations from disk."""
        for name in self._revised:
            if not self.is_doubted(name):
                self.applied.pop(name, None)

    async def forget_failures(self, steps: list[Step]) -> None:
        """What is no longer to be loaded here has not failed here, either."""
        loading = {step.model.name for step in steps if isinstance(step, Load)}
        settled = [
            key for key in self._fleet.failures if key[0] == self._name and key[1] not in loading
        ]
        for key in settled:
            del self._fleet.failures[key]
        if settled:
            await self._publisher.refresh()

    def is_due(self, step: Step) -> bool:
        """Whether it has not failed, or long enough ago."""
        if isinstance(step, Unload):
            return True
        if step.model.name in self.loading:
            return False  # a call would wait for it, perhaps for ever
        first = self._fleet.tried_by(step.name, step.model.revision)
        if first not in ("", self._name) and self._only_revises(step):
            return False  # it is not known to be good, and what is here serves
        failure = self._fleet.failures.get((self._name, step.model.name))
        return failure is None or failure.about != step.about or self._clock() >= failure.retry_at

    def _only_revises(self, step: Load) -> bool:
        """Whether all is here and right, and only to be run in another way."""
        model, held = step.model, self._fleet.observations[self._name].held.get(step.name, ())
        if not model.revision or step.wrong or not set(step.versions) <= set(held):
            return False
        return model.configuration is None or self.applied.get(model.name) != (
            model.configuration.digest
        )

    def succeeded(self, model: Loadable) -> None:
        """What was loaded is right."""
        self._fleet.failures.pop((self._name, model.name), None)
        self._fleet.found_good(self._name, model.name, model.revision)

    def failed(self, step: Load, reason: str) -> None:
        """Another flavour is tried; the last is tried again, later the more often it has failed."""
        if self._flavouring.falls_back(step, reason):
            was = (self._name, step.model.name, step.model.flavour, reason)
            _log.warning("replica %s cannot run %s as flavour %s: %s", *was)
            return
        key = (self._name, step.model.name)
        before = self._fleet.failures.get(key)
        tries = before.tries + 1 if before and before.about == step.about else 1
        pause = min(FIRST_RETRY * 2 ** min(tries - 1, 16), LAST_RETRY)
        self._fleet.failures[key] = LoadFailure(reason, step.about, tries, self._clock() + pause)
        if tries == 1:
            _log.warning("replica %s cannot load %s: %s", self._name, step.model.name, reason)


def _runs(own: Loadable, found: Configuration) -> bool:
    """Whether a Triton that tells this runs it as it should be run."""
    return own.configuration is not None and is_in_force(own.configuration, found)
