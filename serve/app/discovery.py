"""What finds replicas while the control plane runs, put together.

Which pools may have no replica, as people have set it.
"""

import os
import time
from collections.abc import Callable, Iterable

from serve.app.pools import usual_pools
from serve.control.decisions import Decisions
from serve.control.discovery import Discovering
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.membership import Membership
from serve.control.scaling.pools import settings_of
from serve.core.discovery import ByName, Place, places_of
from serve.settings import Settings
from serve.triton.discovery.source import ReplicaSource

# --- which pools may have no replica, as people have set it ---------------------------------------


def may_begin_empty(settings: Settings) -> bool:
    """Whether a control plane may begin without any: who starts Tritons waits for its hints, or
    they are yet to be discovered.

    Whatever the fewest are at the start: people may have allowed none since then.
    """
    return settings.autoscale_bounds is not None or bool(settings.discover)


def may_sleep_of(settings: Settings, decisions: Decisions) -> Callable[[str], bool]:
    """Whether a pool may have none; a schedule that wants some now has no say in that."""
    usual = usual_pools(settings)
    return lambda pool: settings_of(decisions, pool, usual).to_zero


def may_all_sleep(settings: Settings, decisions: Decisions, models: Iterable[str]) -> bool:
    """Whether there may be no replica at all: these models have pools, none of which needs any."""
    may_sleep = may_sleep_of(settings, decisions)
    pools = {pool for model in models for pool in decisions.pools(model)}
    return bool(pools) and all(map(may_sleep, pools))


# --- discovery ------------------------------------------------------------------------------------


def discovering_of(
    settings: Settings,
    fleet: Fleet,
    membership: Membership,
    inventory: Inventory,
    *,
    decisions: Callable[[], Decisions],
) -> Discovering:
    """Follows what `discover` names; nothing where that is empty."""
    places = places_of(settings.discover)
    return Discovering(
        {text: _source(place) for text, place in places.items()},
        settings.tritons(),
        fleet=fleet,
        membership=membership,
        may_be_empty=lambda: may_all_sleep(settings, decisions(), inventory.models),
        clock=time.monotonic,
    )


def _source(place: Place) -> ReplicaSource:
    """Asks nobody yet; `CannotStart` says where it could not."""
    if isinstance(place, ByName):
        from serve.triton.discovery.names import NamedReplicas

        return NamedReplicas(place.model)
    from serve.triton.discovery.kubernetes import Cluster, EndpointSlices

    return EndpointSlices(Cluster.of(place, os.environ))
