"""The fleet as numbers for Prometheus: who answers, and what is missing on whom.

Missing: the versions that a replica should serve and cannot be called for.

A Triton that was restarted answers at once and holds nothing yet; so does one that has just come.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory

# --- missing --------------------------------------------------------------------------------------


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


# --- the fleet as numbers for Prometheus ----------------------------------------------------------


class FleetMeters:
    """Looks at the fleet when Prometheus asks."""

    def __init__(self, fleet: Fleet, inventory: Inventory) -> None:
        self._fleet = fleet
        self._inventory = inventory

    def __repr__(self) -> str:
        return f"<FleetMeters of {self._fleet}>"

    def collect(self) -> Iterable[Metric]:
        """All families, of every replica."""
        up = _family("up", "1 while the replica responds to the control plane")
        text = "Versions that the replica should serve but that are not ready on it"
        missing = _family("missing_versions", text)
        counts = missing_versions(self._fleet, self._inventory)
        for name, seen in self._fleet.observations.items():
            pool = seen.replica.pool
            up.add_metric([name, pool], float(seen.is_up))
            if name in counts:
                missing.add_metric([name, pool], counts[name])
        return [up, missing]


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"servegate_replica_{name}", text, labels=["replica", "pool"])
