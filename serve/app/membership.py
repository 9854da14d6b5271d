"""The parts of a control plane that keep replicas and let them come and go, put together."""

import logging
import time
from collections.abc import Callable, Mapping

from serve.control.decisions import Decisions
from serve.control.deliveries.delivery import Delivery
from serve.control.fleet import Fleet
from serve.control.gateway import GatewayClient
from serve.control.inventory import Inventory
from serve.control.live.sources import Metered
from serve.control.membership import Membership
from serve.control.reconciliation.busy_replicas import Steering
from serve.control.reconciliation.keepers import Keepers
from serve.control.reconciliation.proofs import Proof
from serve.control.reconciliation.reconciler import Looks, ReplicaKeeper
from serve.control.snapshots import Publisher
from serve.core.errors import ServegateError
from serve.core.replicas import Replica
from serve.settings import Settings
from serve.triton.control import TritonControl
from serve.wire.prometheus import samples

_ALL, _BUSY = "servegate_calls_in_flight", "servegate_replica_calls_in_flight"
_log = logging.getLogger("servegate.membership")


def membership_of(
    settings: Settings,
    fleet: Fleet,
    inventory: Inventory,
    publisher: Publisher,
    gateway: GatewayClient,
    *,
    steering: Steering,
    delivery: Delivery,
    proof: Proof,
    decisions: Callable[[], Decisions],
) -> tuple[Keepers, Membership]:
    """The keepers of the replicas that there are, and what lets others come."""

    looks = Looks(lambda: len(fleet.observations), tick=settings.tick)

    def keep(replica: Replica) -> ReplicaKeeper:
        return ReplicaKeeper(
            replica.name,
            TritonControl(replica, timeout=1.0),
            fleet=fleet,
            inventory=inventory,
            publisher=publisher,
            steering=steering,
            delivery=delivery,
            proof=proof,
            decisions=decisions,
            clock=time.monotonic,
            looks=looks,
            machine=settings.machine(replica.name, replica.pool),
        )

    async def busy() -> Mapping[str, float] | None:
        return await calls_in_flight(gateway)

    keepers = Keepers()
    membership = Membership(fleet, keepers, publisher, keep=keep, busy=busy, clock=time.monotonic)
    return keepers, membership


async def calls_in_flight(gateway: Metered) -> Mapping[str, float] | None:
    """By replica, as all workers of the gateway tell it; None when it tells nothing."""
    try:
        told = list(samples(await gateway.metrics(), (_ALL, _BUSY)))
        found: dict[str, float] = {}
        for sample in told:
            if sample.name == _BUSY:
                name = sample.labels["replica"]
                found[name] = found.get(name, 0.0) + sample.value
    except (ServegateError, OSError, ValueError, KeyError) as error:
        _log.debug("no metrics from the gateway: %s", error or type(error))
        return None
    return found if any(sample.name == _ALL for sample in told) else None  # no worker has told
