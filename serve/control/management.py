"""Triton's management calls as decisions: they change what is wanted, and wait until it is so.

A load or unload call to Triton changes one process until its next restart. Here it is written down,
like a route, and the reconciler brings every replica there, those included that start later.

| call                 | what is decided                                           | done when     |
|----------------------|-----------------------------------------------------------|---------------|
| load                 | the model is served as its folder says, loaded anew       | all hold it   |
| load with a `config` | the same, with this configuration, not config.pbtxt       | all hold it   |
| unload               | the model is not served, whatever its folder says         | none holds it |
| trace, log settings  | the settings, for every replica                           | all have them |

A load that fails with a `config` leaves what was decided before in force.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from serve.control.decisions import LOGGING, SERVING, TRACE, Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.models import By
from serve.control.reconciliation.keepers import Keepers
from serve.control.reconciliation.reconciler import ReplicaKeeper
from serve.control.registry import Model
from serve.control.snapshots import Publisher
from serve.control.storage.store import Store, StoreEdit
from serve.core.errors import (
    DeadlineExceeded,
    FixedSetting,
    InUse,
    Invalid,
    LoadFailed,
    ModelControlOff,
    NotInRepository,
    Unavailable,
    UnreadableConfiguration,
)
from serve.triton import config as triton_config
from serve.triton.canonical import check_files
from serve.triton.control import Settings

_IMMUTABLE = "the configuration of a published version cannot change; push a new version"
_NO_VERSION = "at least one version must be available under the version policy of model '{}'"
_FILES = {TRACE: "trace_file", LOGGING: "log_file"}


class ManagementCommands:
    """The commands. `within` are seconds until `DeadlineExceeded`; what was decided stays so."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        fleet: Fleet,
        publisher: Publisher,
        keepers: Keepers,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._fleet = fleet
        self._publisher = publisher
        self._keepers = keepers
        self._decisions = decisions
        self._reload = reload
        self._one = asyncio.Lock()  # command at a time, as in Triton
        self._looked = asyncio.Event()  # some keeper has done a round
        keepers.after_rounds(self._looked.set)

    def __repr__(self) -> str:
        return f"<ManagementCommands of {len(self._keepers)} replicas>"

    async def load(self, name: str, config: str | None, by: By, within: float) -> None:
        """Serve a model, and load it anew wherever it is; `LoadFailed` says why it cannot be."""
        async with self._one:
            self._require_repository()
            await self._inventory.scan()
            known = self._inventory.models.get(name)
            if known is None or not known.loadables:
                raise NotInRepository(name)
            if config is not None:
                if any(one.published for one in known.loadables):
                    raise LoadFailed(name, _IMMUTABLE)
                self._check(name, config)
            before = self._decisions().entry(SERVING, name).body
            await self._decide(name, None if config is None else {"config": config}, by)
            model = self._inventory.models[name]
            for part in self._parts(model):
                if self._decisions().is_unloaded(part):
                    await self._decide(part, None, by)
            try:
                if model.problem:
                    raise UnreadableConfiguration(name, model.problem)
                if not model.wanted:
                    raise LoadFailed(name, _NO_VERSION.format(name))
                await self._bring(model, within)
            except (LoadFailed, UnreadableConfiguration):
                if config is not None:
                    await self._decide(name, before, by)
                raise

    async def unload(self, name: str, by: By, within: float, *, dependents: bool = False) -> None:
        """Serve a model no longer; a name that nobody knows is unloaded already."""
        async with self._one:
            self._require_repository()
            model = self._inventory.models.get(name)
            names = [name, *(self._parts(model) if model and dependents else ())]
            for one in names:
                self._require_unused(one, besides=names)
            loaded = [self._inventory.models[one] for one in names if one in self._inventory.models]
            held = [one.name for each in loaded for one in each.loadables] or [name]
            for each in loaded:
                if not self._decisions().is_unloaded(each.name):
                    await self._decide(each.name, {"unloaded": True}, by)
            await self._wait(
                lambda: not any(keeper.holds(one) for keeper in self._present() for one in held),
                within,
                f"unloading model '{name}'",
            )

    async def change(
        self, kind: str, model: str, settings: Settings, by: By, within: float
    ) -> Settings:
        """Change trace or log settings of all replicas; gives what then holds.

        A setting that is None goes back to what it was without us. Without settings this only asks.
        """
        async with self._one:
            keeper = next(iter(self._present()), None)
            if keeper is None:
                raise Unavailable("no replica answers")
            if _FILES[kind] in settings:
                if model:
                    await keeper.settings(kind, model, {})  # an unknown one is refused first
                raise FixedSetting(_FILES[kind])
            holds = await keeper.settings(kind, model, settings)  # refuses what is wrong
            if settings:
                merged = {**(self._decisions().entry(kind, model).body or {}), **settings}
                change = StoreEdit(kind, model, merged, by.author, by.reason)
                await self._store.apply(change)
                await self._reload()
                await self._wait(
                    lambda: all(one.has_settings for one in self._present()),
                    within,
                    f"changing the {kind} settings",
                )
            return holds

    async def _decide(self, name: str, body: Mapping[str, object] | None, by: By) -> None:
        await self._store.apply(StoreEdit(SERVING, name, body, by.author, by.reason))
        await self._reload()
        await self._publisher.refresh()

    @staticmethod
    def _check(name: str, config: str) -> None:
        try:
            wanted = triton_config.of_json(config)
            check_files(wanted)  # Triton would open them wherever they lie
            named = wanted.message.name
        except Invalid as error:
            raise UnreadableConfiguration(name, str(error)) from error
        if named not in ("", name):
            raise UnreadableConfiguration(name, f"the configuration is for model '{named}'")

    def _parts(self, model: Model) -> list[str]:
        """The models that a model's ensembles are made of."""
        loadables = self._inventory.loadables
        names = [part for one in model.loadables for part in one.composing_models]
        return [loadables[name].model if name in loadables else name for name in names]

    def _require_unused(self, name: str, besides: Sequence[str]) -> None:
        """`InUse` when a published ensemble that is to be held is made of this model."""
        users = [
            model.name
            for model in self._inventory.models.values()
            if model.name not in besides
            and any(one.published and one.wanted for one in model.loadables)
            and name in self._parts(model)
        ]
        if users:
            raise InUse(f"model '{name}'", [f"ensemble '{user}'" for user in users])

    async def _bring(self, model: Model, within: float) -> None:
        """Have every replica load the model again, at once; wait until all have tried."""
        wanted = [
            (keeper, one.name)
            for keeper in self._present()
            for one in model.loadables
            if keeper.serves(one.name) and (one.wanted or not one.published)
        ]
        if not wanted:
            raise Unavailable(f"no replica is available to load model '{model.name}'")
        for keeper, name in wanted:
            keeper.load_again(name)
        await self._wait(
            lambda: all(one.is_settled(name) for one, name in wanted if one in self._present()),
            within,
            f"loading model '{model.name}'",
        )
        for keeper, name in wanted:
            problem = "" if self._fleet.is_retired(keeper.name) else keeper.problem(name)
            if problem:
                raise LoadFailed(model.name, problem)

    def _present(self) -> list[ReplicaKeeper]:
        """The replicas that answer: the others follow when they come back."""
        return [one for one in self._keepers if self._fleet.is_present(one.name)]

    async def _wait(self, reached: Callable[[], bool], within: float, what: str) -> None:
        try:
            async with asyncio.timeout(within):
                while not reached():
                    self._looked.clear()
                    await self._looked.wait()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"{what} did not finish within {within:.3g} s", why="it continues in the background"
            ) from error
        generation = await self._publisher.refresh()
        await self._publisher.in_force(generation, within)

    def _require_repository(self) -> None:
        if self._inventory.is_discovering:
            raise ModelControlOff(
                why="this gateway has no model repository; its Tritons manage their own models",
                try_this="servegate up or servegate control with --model-repo FOLDER",
            )
