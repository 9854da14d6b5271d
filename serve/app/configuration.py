"""The parts of a control plane that change serving configurations, put together."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.batching.change import ChangeRunner
from serve.control.batching.checks import Checks
from serve.control.batching.configurations import Configuring
from serve.control.batching.rollout import Rollouts
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.gateway import GatewayClient
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.control.publication.trials import Trials
from serve.control.reconciliation.keepers import Keepers
from serve.control.snapshots import Publisher
from serve.control.storage.store import Store
from serve.processes import SystemClock
from serve.settings import Settings


def configuring_of(
    settings: Settings,
    storage: ArtifactStorage,
    trials: Trials,
    gateway: GatewayClient,
    *,
    store: Store,
    models: Models,
    inventory: Inventory,
    fleet: Fleet,
    publisher: Publisher,
    keepers: Keepers,
    decisions: Callable[[], Decisions],
    reload: Callable[[], Awaitable[None]],
) -> Configuring:
    """What changes configurations on these replicas, and watches what the gateway says of it."""
    plain = Path(settings.model_repo) if settings.model_repo else None
    rollouts = Rollouts(keepers, fleet, clock=time.monotonic)
    checks = Checks(storage, trials, plain=plain, others=lambda: inventory.configurations)
    performing = ChangeRunner(
        store,
        rollouts,
        publisher,
        checks,
        decisions=decisions,
        reload=reload,
        metrics=gateway.metrics,
        clock=SystemClock(),
        wall=time.time,
    )
    return Configuring(
        store,
        models,
        inventory,
        rollouts,
        checks,
        performing,
        generation=lambda: publisher.snapshot.generation,
        wall=time.time,
    )
