"""The parts of a control plane that call versions for people, put together."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.gateway import GatewayClient
from serve.control.models import Models
from serve.control.reconciliation.contracts import Contracts
from serve.control.storage.store import Store
from serve.control.tries.desk import TryDesk, Witnesses
from serve.control.tries.examples import Examples
from serve.control.tries.golden_cases import AddedCases
from serve.control.tries.sides import Sides
from serve.control.tries.tries import Tries
from serve.control.tries.versions import TriedVersions


def trying_of(
    storage: ArtifactStorage,
    gateway: GatewayClient,
    models: Models,
    *,
    store: Store,
    fleet: Fleet,
    contracts: Contracts,
    collecting: asyncio.Lock,
    decisions: Callable[[], Decisions],
    reload: Callable[[], Awaitable[None]],
) -> TryDesk:
    """The desk of one control plane; see `Records.collecting`."""
    witnesses = Witnesses(models, fleet, contracts.judge)
    added = AddedCases(
        store,
        storage,
        decisions=decisions,
        reload=reload,
        refuses=witnesses.refuses,
        collecting=collecting,
        wall=time.time,
    )
    versions = TriedVersions(models, added)
    tries = Tries(storage.objects, Sides(gateway, versions), Examples(versions), wall=time.time)
    return TryDesk(tries, versions, added, witnesses, gateway)
