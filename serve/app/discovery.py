"""What finds replicas while the control plane runs, put together."""

import os
import time
from collections.abc import Callable

from serve.app.scale_to_zero import may_all_sleep
from serve.control.decisions import Decisions
from serve.control.discovery import Discovering
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.membership import Membership
from serve.core.discovery import ByName, Place, places_of
from serve.settings import Settings
from serve.triton.discovery.source import ReplicaSource


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
