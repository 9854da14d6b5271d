"""The parts of a control plane that publish versions, put together."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from serve.app.paths import QUARANTINE_FOLDER, STORAGE_FOLDER, UPLOADS_FOLDER
from serve.control.added_cases import blobs_of_cases
from serve.control.artifacts.contents import Contents
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.deliveries.agents import AgentDelivery
from serve.control.deliveries.bucket import BucketDelivery
from serve.control.deliveries.delivery import Delivery
from serve.control.deliveries.folder import FolderDelivery
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.control.publication.checks import Checker
from serve.control.publication.ensembles import PinnableVersions
from serve.control.publication.garbage import Heap
from serve.control.publication.pending_labels import Pending
from serve.control.publication.pipeline import DefaultRoutes, Pipeline
from serve.control.publication.publications import Publications
from serve.control.publication.records import IN_PROGRESS, Records
from serve.control.publication.retention import Retention
from serve.control.publication.trials import Trials
from serve.control.reconciliation.contracts import Contracts
from serve.control.storage.store import Store
from serve.control.stored_conversions import needed_blobs, needed_uploads
from serve.control.uploads.uploads import UploadLimits, Uploads
from serve.core.errors import CannotStart, ServegateError
from serve.model_files.reader import read_model
from serve.settings import Settings
from serve.triton.installation import Installation, MachineFacts
from serve.triton.quarantine import NAME, Quarantine, TrialLimits

_log = logging.getLogger("servegate.publishing")
_SWEEP = 3600.0  # seconds between two looks for uploads that nobody finishes


def storage_of(settings: Settings) -> ArtifactStorage:
    """Where published versions are kept."""
    return ArtifactStorage.of(settings.storage or str(settings.state_path / STORAGE_FOLDER))


def delivery_of(settings: Settings, storage: ArtifactStorage) -> Delivery:
    """How the Tritons get them."""
    if settings.delivery == "agents":
        return AgentDelivery(storage)
    if settings.delivery == "bucket":
        return BucketDelivery(storage, settings.storage)
    return FolderDelivery(storage, Path(settings.delivery_folder))


def quarantine_of(settings: Settings) -> Quarantine | None:
    """The throw-away Triton that tries versions; None where there can be none, or shall be none."""
    if settings.quarantine == "off" or not settings.publishes:
        return None
    try:
        installation = Installation.find(MachineFacts.here())
    except CannotStart as problem:
        if settings.quarantine == "required":
            raise CannotStart("the quarantine cannot start a Triton", why=str(problem)) from problem
        _log.warning("versions are published without a trial: %s", problem)
        return None
    return throw_away(settings, installation, settings.state_path / QUARANTINE_FOLDER)


def throw_away(
    settings: Settings,
    installation: Installation,
    state: Path,
    *,
    name: str = NAME,
    steps_back: bool = True,
) -> Quarantine:
    """Throw-away Tritons under the operator's limits, whose state is in this folder."""
    return Quarantine(
        installation,
        state=state,
        logger=logging.getLogger("servegate.triton"),
        limits=TrialLimits(settings.quarantine_bytes, settings.quarantine_timeout),
        extra_args=settings.triton_args,
        avoid=_ports(settings),
        name=name,
        steps_back=steps_back,
    )


def _ports(settings: Settings) -> frozenset[int]:
    """The ports of all replicas, also of those that are just being started again."""
    return frozenset(
        port
        for one in settings.tritons()
        for port in (one.http_port, one.grpc_port, one.metrics_port)
    )


class Publishing:
    """Uploads, publications and what keeps them, of one control plane."""

    def __init__(
        self,
        settings: Settings,
        storage: ArtifactStorage,
        *,
        store: Store,
        inventory: Inventory,
        models: Models,
        contracts: Contracts,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        publish: Callable[[], Awaitable[int]],
    ) -> None:
        state = settings.state_path
        self.records = Records(
            store, decisions=decisions, reload=reload, publish=publish, wall=time.time
        )
        limits = UploadLimits(
            upload=settings.max_upload_bytes, quota=settings.upload_quota, keep=settings.upload_keep
        )
        self.uploads = Uploads(state / UPLOADS_FOLDER, storage, limits=limits)
        parts = PinnableVersions(decisions, lambda: inventory.loadables, models.main_version)
        holding = DefaultRoutes(self.records, models.serving_now)
        work = state / "checks"
        plain = Path(settings.model_repo) if settings.model_repo else None
        self.trials = Trials(
            storage,
            quarantine_of(settings),
            parts,
            folder=work,
            plain=plain,
            judge=contracts.judge,
            machine=settings.machine(NAME),
        )
        pipeline = Pipeline(
            self.records,
            storage,
            self.uploads,
            checker=Checker(
                Contents(storage),
                parts,
                folder=work,
                read_model=read_model,
                allow_code=settings.allow_code_models,
            ),
            trials=self.trials,
            holding=holding,
            has_plain=inventory.has_plain,
            folder=work,
            clock=time.monotonic,
        )
        self.publications = Publications(
            self.records, pipeline, plain_versions=inventory.plain_versions
        )
        self._pending = Pending(
            self.records,
            ready_enough=models.ready_enough,
            set_label=models.set_label,
            set_route=models.set_route,
        )
        self.retention = Retention(
            self.records,
            storage,
            Heap(
                self.records,
                storage,
                self.uploads,
                kept=lambda: needed_blobs(decisions()) | blobs_of_cases(decisions()),
            ),
            parts=parts,
            holding=holding,
            loadables=lambda: inventory.loadables,
            referring=models.referring,
            keep=settings.keep_versions,
        )

    def __repr__(self) -> str:
        return f"<Publishing {self.uploads!r} {self.publications!r}>"

    async def run(self) -> None:
        """Publish what is uploaded, set what waits, drop what nobody finishes; for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.publications.run())
            tasks.create_task(self._pending.run())
            tasks.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            waiting = {one.upload for one in self.records.all() if one.state in IN_PROGRESS}
            sources = needed_uploads(self.records.decisions)
            try:
                await self.uploads.sweep(waiting | sources)
            except (ServegateError, OSError) as error:
                _log.warning("cannot clean up unfinished uploads: %s", error)
            await asyncio.sleep(_SWEEP)
