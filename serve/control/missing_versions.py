"""Missing: the versions that a replica should serve and cannot be called for.

A Triton that was restarted answers at once and holds nothing yet; so does one that has just come.
"""

from collections.abc import Mapping

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory


def missing_versions(
    fleet: Fleet, inventory: Inventory, *, failed: bool = True
) -> Mapping[str, int]:
    """How many, by replica: those that answer, stay, and do not load for themselves.

    `failed`: those count that could not be loaded there.
    """
    counts = {
        name: 0
        for name, seen in fleet.observations.items()
        if fleet.is_present(name) and not seen.self_managed
    }
    for pool in fleet.pools:
        members = fleet.holding.members([pool]) & counts.keys()
        for name, one in inventory.for_pool(pool).items():
            for version in () if one.problem else one.wanted:
                for replica in members - fleet.callable_on(name, version):
                    if failed or (replica, name) not in fleet.failures:
                        counts[replica] += fleet.can_hold(replica, name)
    return counts
