"""The parts of a control plane that measure serving configurations, put together."""

import time
from collections.abc import Callable
from pathlib import Path

from serve.app.paths import BENCHES_FOLDER
from serve.app.publication import throw_away
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.batching.bench_places import Drained, Notes, ThrowAway
from serve.control.batching.bench_subjects import Subjects
from serve.control.batching.benches import Benches
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.control.publication.ensembles import PinnableVersions
from serve.control.reconciliation.loans import Lending
from serve.core.errors import CannotStart
from serve.settings import Settings
from serve.triton.installation import Installation, MachineFacts
from serve.triton.quarantine import NAME, Quarantine

_LENT_FILE = "lent"


def benches_of(
    settings: Settings,
    storage: ArtifactStorage,
    inventory: Inventory,
    fleet: Fleet,
    models: Models,
    lending: Callable[[str], Lending | None],
    *,
    decisions: Callable[[], Decisions],
) -> Benches:
    """Benches in a throw-away Triton, where there can be one, and on replicas."""
    folder = settings.state_path / BENCHES_FOLDER
    plain = Path(settings.model_repo) if settings.model_repo else None
    parts = PinnableVersions(decisions, lambda: inventory.loadables, models.main_version)
    return Benches(
        Subjects(models, inventory, parts),
        ThrowAway(
            _triton(settings, folder),
            storage,
            folder=folder / "repositories",
            plain=plain,
            machine=settings.machine(NAME),
        ),
        Drained(
            lending,
            fleet,
            machine=lambda one: settings.machine(one.name, one.pool),
            loads=lambda: not inventory.is_discovering,
            notes=Notes(folder / _LENT_FILE),
        ),
        clock=time.monotonic,
    )


def _triton(settings: Settings, folder: Path) -> Quarantine | None:
    """As the quarantine of versions, but as important as everything else; None where it is off."""
    if settings.quarantine == "off":
        return None
    try:
        installation = Installation.find(MachineFacts.here())
    except CannotStart:
        return None
    return throw_away(settings, installation, folder, name="bench", steps_back=False)
