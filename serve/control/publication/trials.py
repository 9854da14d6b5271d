"""Trials: a checked version is loaded and asked in quarantine before any serving replica sees it.

The throw-away Triton gets a repository of its own: the version as it would be published, for an
ensemble also all that it is pinned to, each loaded by number, parts before what is made of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from serve.control.artifacts.contents import Contents, scratch
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.version_folder import materialise
from serve.control.publication.ensembles import PinnableVersions, PinnedStep, parts_of
from serve.control.registry import Loadable
from serve.control.versions import PublishedVersion
from serve.core.errors import TrialFailed
from serve.core.flavours import BASE, UNKNOWN, Flavour, Machine
from serve.core.replicas import Replica
from serve.core.versions import Manifest
from serve.processes.failpoints import reach
from serve.tensors.contracts import Contract
from serve.triton.canonical import canonical_text
from serve.triton.config import Configuration
from serve.triton.flavoured import configured
from serve.triton.quarantine import Quarantine, QuarantineOrder

NOT_TRIED = "it was published without a trial, because there is no Triton for the quarantine"
NO_FORM = "it was published without a trial, because the quarantine can run none of its flavours"

Judge = Callable[[Replica, PublishedVersion, Contract], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Tried:
    """What a trial has found: bytes of memory that the load took, and sentences for people."""

    memory: int | None
    findings: tuple[str, ...] = ()


class Trials:
    """Tries one version at a time. `folder` is where the repositories are built; `plain` is the
    plain model repository; `judge` runs a contract and says what was wrong. Without a quarantine a
    version passes, and its findings say so. Of a version with several forms those are tried that
    `machine`, where the quarantine runs, can run."""

    def __init__(
        self,
        storage: ArtifactStorage,
        quarantine: Quarantine | None,
        parts: PinnableVersions,
        *,
        folder: Path,
        plain: Path | None,
        judge: Judge,
        machine: Machine = UNKNOWN,
    ) -> None:
        self._storage = storage
        self._contents = Contents(storage)
        self._quarantine = quarantine
        self._parts = parts
        self._folder = folder
        self._plain = plain
        self._judge = judge
        self._machine = machine

    def __repr__(self) -> str:
        return f"<Trials {self._quarantine or 'without a Triton'}>"

    async def run(
        self, version: PublishedVersion, manifest: Manifest, config: Configuration | None = None
    ) -> Tried:
        """Load it and run its contract; `TrialFailed` says why it is not fit to be published.

        With `config` it is run by that, and not as it is or will be run by the replicas.
        """
        parts = parts_of(version.configuration, self._parts)
        if self._quarantine is None:
            return Tried(None, (NOT_TRIED,))
        able = [one for one in version.forms.candidates if not one.needs.lacking(self._machine)]
        if not able:
            return Tried(None, (NO_FORM,))
        contract = await self._contents.contract(manifest.layout)
        async with scratch(self._folder) as repository:
            await self._build(repository, version, manifest, parts)
            found = [
                await self._try(repository, _run_by(version, config), one, parts, contract)
                for one in reversed(able)  # the base first
            ]
        return Tried(max(found))

    async def try_plain(self, one: Loadable, config: Configuration) -> bool:
        """Load a plain folder so, without asking it; raises as `run` does. Whether it was tried."""
        if self._quarantine is None or self._plain is None or not one.wanted:
            return False
        parts = parts_of(config, self._parts)
        own = [PinnedStep(one.name, number, config, None) for number in one.wanted]
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        async with scratch(self._folder) as repository:
            await lay_out(repository, (*parts, *own), self._storage, self._plain)
            async with self._quarantine.trial(repository, orders_of((*parts, *own[:-1]), own[-1])):
                reach("quarantine.started")
        return True

    async def _try(
        self,
        repository: Path,
        version: PublishedVersion,
        form: Flavour,
        parts: Sequence[PinnedStep],
        contract: Contract | None,
    ) -> int:
        """Bytes of memory that it takes in this form."""
        assert self._quarantine is not None
        own = self._parts.own(version)
        config = configured(own, form, self._machine.engine_cache)
        orders = orders_of(parts, PinnedStep(version.physical, version.number, config, version))
        try:
            async with self._quarantine.trial(repository, orders) as trial:
                reach("quarantine.started")
                if contract is not None:
                    wrong = await self._judge(trial.replica, version, contract)
                    if wrong:
                        raise TrialFailed("its outputs differ from its golden cases", why=wrong)
                return trial.memory
        except TrialFailed as error:
            if form.name == BASE:
                raise
            raise TrialFailed(f"flavour '{form.name}': {error.what}", why=error.why) from error

    async def _build(
        self,
        repository: Path,
        version: PublishedVersion,
        manifest: Manifest,
        parts: Sequence[PinnedStep],
    ) -> None:
        await lay_out(repository, parts, self._storage, self._plain)
        await materialise(self._storage, manifest, version.config, repository)


def _run_by(version: PublishedVersion, config: Configuration | None) -> PublishedVersion:
    """The version as if it had come with this configuration, and so were of another group."""
    if config is None:
        return version
    return replace(version, config=canonical_text(config), group=config.digest)


async def lay_out(
    repository: Path, parts: Sequence[PinnedStep], storage: ArtifactStorage, plain: Path | None
) -> None:
    """Build what is published in a model repository, and link to what is in the plain one."""
    for part in parts:
        if part.version is not None:
            made_of = await storage.manifest(part.version.model, part.number)
            await materialise(storage, made_of, part.version.config, repository)
        elif plain is not None:
            link = repository / part.name
            if not link.is_symlink():
                link.symlink_to((plain / part.name).absolute())


def orders_of(parts: Sequence[PinnedStep], last: PinnedStep) -> tuple[QuarantineOrder, ...]:
    """One load for each name, with all its numbers; what is tried comes last."""
    numbers: dict[str, list[int]] = {}
    configs: dict[str, Configuration | None] = {}
    for part in (*parts, last):
        numbers.setdefault(part.name, []).append(part.number)
        configs[part.name] = part.configuration
    return tuple(
        QuarantineOrder(name, "" if config is None else config.for_load(numbers[name]))
        for name, config in configs.items()
    )
