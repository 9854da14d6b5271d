"""Pools and what is allowed of them, put together."""

import time
from collections.abc import Awaitable, Callable

from serve.control.decisions import DEFAULT_POOL, Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.scaling.permissions import Pools
from serve.control.scaling.pools import NOTHING, Usual, usual_of
from serve.control.snapshots import Publisher
from serve.control.storage.store import Store
from serve.settings import Settings


def usual_pools(settings: Settings) -> Usual:
    """What is allowed of pools of which nobody has set anything, as `autoscale` has it."""
    bounds = settings.autoscale_bounds
    return NOTHING if bounds is None else usual_of(DEFAULT_POOL, *bounds)


def pools_of(
    settings: Settings,
    *,
    store: Store,
    inventory: Inventory,
    fleet: Fleet,
    publisher: Publisher,
    decisions: Callable[[], Decisions],
    reload: Callable[[], Awaitable[None]],
) -> Pools:
    """The commands and questions about the pools of one control plane."""
    return Pools(
        store,
        inventory,
        fleet,
        decisions=decisions,
        reload=reload,
        publish=publisher.committed,
        wall=time.time,
        usual=usual_pools(settings),
    )
